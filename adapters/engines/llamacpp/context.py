"""One llama.cpp model and context: batches over a non-unified KV cache, one stream a slot."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adapters.engines.backend import ComputeError, Row, Sample
from adapters.engines.llamacpp import abi, sampler
from adapters.engines.llamacpp.models import Model
from adapters.engines.llamacpp.state import State, learn_layout
from harness.engine import EngineError, EngineInfo, EngineOptions, KvMismatch

_FLASH_ATTENTION_OFF = 0
_KV_TYPES = {"f32": 0, "f16": 1}
_EVERYTHING = -1
_SPECIAL = 1 | 8
"""Attribute bits: unknown, control."""


class LlamaContext:
    """The `adapters.engines.backend.Backend` of llama.cpp."""

    def __init__(self, model: Model, options: EngineOptions) -> None:
        self._model = self._load(model)
        self._vocab = abi.lib.llama_model_get_vocab(self._model)
        self._vocab_size = int(abi.lib.llama_vocab_n_tokens(self._vocab))
        n_slots, n_batch = options.max_sequences, max(options.batch_tokens, options.max_sequences)
        self._context = self._create(model, options, n_batch)
        self._memory = abi.lib.llama_get_memory(self._context)
        self._held = [0] * n_slots
        self._snapshot: tuple[int, State] | None = None
        self._allocate_batch(n_slots, n_batch)
        self._layout = learn_layout(self._probe())
        build = f"{abi.WHEEL} {abi.WHEEL_VERSION}"
        self._info = EngineInfo(
            engine="llamacpp",
            build=build,
            model=model.name,
            model_hash=model.sha256,
            layout_hash=hashlib.sha256(f"{build} {model.sha256} {self._layout.text}".encode()).hexdigest(),
            vocab_size=self._vocab_size,
            first_normal_id=self._first_normal_id(),
            max_context_tokens=options.max_context_tokens,
            max_sequences=n_slots,
            kv_bytes_per_token=float(self._layout.bytes_per_token),
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    def compute(self, rows: Sequence[Row]) -> list[Sample | None]:
        at = 0
        last: list[int] = []
        for row in rows:
            end = at + len(row.ids)
            self._token[at:end] = row.ids
            self._pos[at:end] = np.arange(row.start, row.start + len(row.ids), dtype=np.int32)
            self._seq[at:end] = self._seq_address + 4 * row.slot
            self._wanted[at:end] = 0
            self._wanted[end - 1] = row.decode is not None
            last.append(end - 1)
            at = end
        self._batch.n_tokens = at
        code = abi.lib.llama_decode(self._context, self._batch[0])
        if code != 0:
            for row in rows:
                abi.lib.llama_memory_seq_rm(self._memory, row.slot, self._held[row.slot], _EVERYTHING)
            raise ComputeError(f"llama_decode of {at} ids returned {code} {abi.last_error()}".rstrip())
        samples: list[Sample | None] = []
        for row, i in zip(rows, last, strict=True):
            self._held[row.slot] = row.start + len(row.ids)
            samples.append(
                None if row.decode is None else sampler.sample(self._logits(i), row.decode, row.index)
            )
        return samples

    def read(self, slot: int, p0: int, p1: int) -> memoryview:
        return self._state(slot, p1).cut(p0, p1)

    def write(self, slot: int, p0: int, p1: int, payload: memoryview) -> None:
        state = State(self._layout, slot, p1)
        state.put(p0, p1, payload)
        before = self._state(slot, p0) if p0 else None
        if before is not None:
            state.put_before(p0, before)
        state.write_headers()
        if not self._set(slot, state):
            # A refused state leaves the slot empty.
            if before is not None and not self._set(slot, before):
                raise EngineError(f"llama.cpp refused slot {slot}'s own state: {abi.last_error()}")
            raise KvMismatch(f"llama.cpp refused the state of [{p0}, {p1}): {abi.last_error()}")
        self._held[slot] = p1
        self._snapshot = (slot, state)

    def truncate(self, slot: int, length: int) -> None:
        if self._snapshot is not None and self._snapshot[0] == slot and self._snapshot[1].tokens > length:
            self._snapshot = None
        if length < self._held[slot]:
            abi.lib.llama_memory_seq_rm(self._memory, slot, length, _EVERYTHING)
            self._held[slot] = length

    def copy(self, source: int, target: int, length: int) -> None:
        self.write(target, 0, length, self.read(source, 0, length))

    def free(self) -> None:
        abi.lib.llama_free(self._context)
        abi.lib.llama_model_free(self._model)

    @staticmethod
    def _load(model: Model) -> object:
        params = abi.lib.llama_model_default_params()
        params.n_gpu_layers = 0
        loaded = abi.lib.llama_model_load_from_file(str(model.path).encode(), params)
        if loaded == abi.ffi.NULL:
            raise EngineError(f"{model.path}: llama.cpp cannot load this model: {abi.last_error()}")
        return loaded

    def _create(self, model: Model, options: EngineOptions, n_batch: int) -> object:
        params = abi.lib.llama_context_default_params()
        params.n_ctx = options.max_context_tokens * options.max_sequences
        params.n_seq_max = options.max_sequences
        params.n_batch = params.n_ubatch = n_batch
        params.n_outputs_max = options.max_sequences
        params.n_threads = params.n_threads_batch = options.threads
        params.flash_attn_type = _FLASH_ATTENTION_OFF
        params.type_k = params.type_v = _KV_TYPES[model.kv_type]
        params.offload_kqv = params.op_offload = False
        params.kv_unified = False
        context = abi.lib.llama_init_from_model(self._model, params)
        if context == abi.ffi.NULL:
            abi.lib.llama_model_free(self._model)
            raise EngineError(f"{model.name}: llama.cpp cannot create its context: {abi.last_error()}")
        return context

    def _allocate_batch(self, n_slots: int, n_batch: int) -> None:
        """Arrays that the C batch points into; they live as long as this object."""
        self._token = np.zeros(n_batch, np.int32)
        self._pos = np.zeros(n_batch, np.int32)
        self._wanted = np.zeros(n_batch, np.int8)
        self._seq = np.zeros(n_batch, np.uintp)
        self._one_seq = np.ones(n_batch, np.int32)
        self._seq_ids = np.arange(n_slots, dtype=np.int32)
        self._seq_address = np.uintp(self._seq_ids.ctypes.data)
        batch = abi.ffi.new("batch *")
        for name, kind, values in (
            ("token", "int32_t *", self._token),
            ("pos", "int32_t *", self._pos),
            ("n_seq_id", "int32_t *", self._one_seq),
            ("seq_id", "int32_t **", self._seq),
            ("logits", "int8_t *", self._wanted),
        ):
            setattr(batch, name, abi.ffi.cast(kind, values.ctypes.data))
        self._batch = batch

    def _probe(self) -> bytes:
        """The state of one computed position, which shows the layout."""
        self.compute([Row(0, 0, [0], None, 0)])
        n = abi.lib.llama_state_seq_get_size_ext(self._context, 0, 0)
        out = np.zeros(n, np.uint8)
        abi.lib.llama_state_seq_get_data_ext(self._context, self._pointer(out), n, 0, 0)
        self.truncate(0, 0)
        return out.tobytes()

    def _state(self, slot: int, tokens: int) -> State:
        """The state of a slot, of its first `tokens` positions at least. What was read or written last is
        kept, because KV of held positions does not change and transfers go on piece by piece."""
        if self._snapshot is not None and self._snapshot[0] == slot and self._snapshot[1].tokens >= tokens:
            return self._snapshot[1]
        state = State(self._layout, slot, self._held[slot])
        n = len(state.buffer)
        got = abi.lib.llama_state_seq_get_data_ext(self._context, self._pointer(state.buffer), n, slot, 0)
        if got != n:
            raise EngineError(f"llama.cpp wrote {got} bytes of slot {slot}'s state, expected {n}")
        state.check_positions()
        self._snapshot = (slot, state)
        return state

    def _set(self, slot: int, state: State) -> bool:
        n = len(state.buffer)
        taken = abi.lib.llama_state_seq_set_data_ext(self._context, self._pointer(state.buffer), n, slot, 0)
        return bool(taken == n)

    def _logits(self, i: int) -> npt.NDArray[np.float32]:
        """Valid until the next batch."""
        row = abi.lib.llama_get_logits_ith(self._context, i)
        return np.frombuffer(abi.ffi.buffer(row, 4 * self._vocab_size), np.float32)

    @staticmethod
    def _pointer(values: npt.NDArray[np.uint8]) -> object:
        pointer: object = abi.ffi.cast("uint8_t *", values.ctypes.data)
        return pointer

    def _first_normal_id(self) -> int:
        attributes = abi.lib.llama_vocab_get_attr
        return next(i for i in range(self._vocab_size) if not attributes(self._vocab, i) & _SPECIAL)
