"""The embedded vLLM: its configuration, and the few calls that reach into it.

Whatever depends on vLLM's insides is in this package's core, connector, kv_store, kv_tensors and
keyed_sampling; the version is therefore pinned.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import torch
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind

from adapters.engines.vllm import models
from adapters.engines.vllm.job import ARGUMENT, Job
from adapters.engines.vllm.kv_store import KvStore
from adapters.engines.vllm.kv_tensors import KvTensors
from harness.engine import EngineError, EngineInfo, EngineOptions

_CPU_BLOCK_TOKENS = 32  # the smallest that vLLM's CPU attention takes
_UNUSED_BYTES = 1 << 20
_set_threads = torch.set_num_threads
"""As it is before vLLM's CPU worker puts a function that does nothing in its place."""
_ONE_AT_A_TIME = threading.Lock()
"""vLLM keeps the connector and the forward context of a step in globals. A worker has one engine and never
waits here; tests have several, each on its thread."""


class Core:
    """One LLMEngine in this process, run by whoever calls `step`."""

    def __init__(self, options: EngineOptions, build: str) -> None:
        model = models.resolve(options.model, options.model_sha256)
        self._threads = options.threads
        self._thread: threading.Thread | None = None
        self._enter_thread()
        with _ONE_AT_A_TIME:
            kv_transfer_state._KV_CONNECTOR_AGENT = None  # noqa: SLF001
            try:
                self._llm = LLMEngine.from_engine_args(_arguments(options, model))
            except (ValueError, RuntimeError, OSError) as error:
                raise EngineError(
                    f"vLLM cannot load model {options.model!r}: {_first_line(error)}"
                ) from error
            self._agent: Any = kv_transfer_state._KV_CONNECTOR_AGENT  # noqa: SLF001
        core = self._llm.engine_core.engine_core
        self._tensors: KvTensors = self._agent.tensors
        self._manager = core.scheduler.kv_cache_manager
        self._info = self._describe(options, build, model)

    def add(self, job: Job, ids: list[int]) -> None:
        """Queue a request for all of `ids`. One that only extends still samples a token, for nothing."""
        decode = job.decode
        params = SamplingParams(
            max_tokens=decode.max_tokens if decode is not None else 1,
            temperature=0.0,
            ignore_eos=True,
            stop_token_ids=list(decode.stop_ids) if decode is not None else [],
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={ARGUMENT: job},
        )
        job.request_id = self._llm.add_request(job.name, {"prompt_token_ids": ids}, params)

    def abort(self, job: Job) -> None:
        """End a request; the connector has noted what it computed."""
        self._llm.abort_request([job.request_id], internal=True)

    def step(self) -> dict[str, tuple[int | None, bool]]:
        """Compute one batch: (token sampled, whether the request has ended) by the job's name."""
        self._enter_thread()
        with _ONE_AT_A_TIME:
            kv_transfer_state._KV_CONNECTOR_AGENT = self._agent  # noqa: SLF001
            outputs = self._llm.step()
        answers: dict[str, tuple[int | None, bool]] = {}
        for output in outputs:
            ids = output.outputs[0].token_ids
            answers[output.request_id] = (ids[-1] if ids else None, output.finished)
        return answers

    def new_store(self) -> KvStore:
        """Empty slots over this vLLM's KV cache."""
        return KvStore(self._info, self._manager, self._tensors)

    def shutdown(self) -> None:
        """Free it, and with it the process's torch groups, which every vLLM of a process shares."""
        with _ONE_AT_A_TIME:
            kv_transfer_state._KV_CONNECTOR_AGENT = self._agent  # noqa: SLF001
            self._llm.engine_core.shutdown()

    def _enter_thread(self) -> None:
        """OpenMP has a thread count for each calling thread, at first OMP_NUM_THREADS. vLLM's CPU attention
        takes it twice a step, and fails if torch, which sets it when it first needs it, comes between."""
        if self._thread is not threading.current_thread():
            self._thread = threading.current_thread()
            _set_threads(self._threads)

    def _describe(self, options: EngineOptions, build: str, model: models.Model) -> EngineInfo:
        config = self._llm.vllm_config
        layers = config.compilation_config.static_forward_context
        kernels = sorted(
            {
                f"{type(x.impl).__name__}/{getattr(x, 'isa', '')}"
                for x in layers.values()
                if hasattr(x, "impl")
            }
        )
        layout = f"{build} {model.sha256} {kernels} {self._tensors.describe()}"
        return EngineInfo(
            engine="vllm",
            build=build,
            model=model.name,
            model_hash=model.sha256,
            layout_hash=hashlib.sha256(layout.encode()).hexdigest(),
            vocab_size=config.model_config.get_vocab_size(),
            first_normal_id=model.first_normal_id,
            max_context_tokens=options.max_context_tokens,
            max_sequences=options.max_sequences,
            kv_bytes_per_token=self._tensors.kv_bytes_per_token,
            block_tokens=self._tensors.block_tokens,
        )


def _arguments(options: EngineOptions, model: models.Model) -> EngineArgs:
    on_cpu = current_platform.is_cpu()
    capacity = options.capacity_tokens or options.max_sequences * options.max_context_tokens
    block_tokens = _CPU_BLOCK_TOKENS if on_cpu else None
    rounding = block_tokens or 16
    # One block more a sequence, for its unfinished one, and vLLM's null block: what is within the capacity
    # in tokens then always fits in blocks, and vLLM never has to preempt or evict by itself.
    # (vLLM wants room for one whole context, whatever the capacity.)
    least = max(capacity, options.max_context_tokens + 1)
    blocks = -(-least // rounding) + options.max_sequences + 1
    return EngineArgs(
        model=str(model.path),
        dtype=model.dtype,
        skip_tokenizer_init=True,
        # A last token may be sampled at the full context; vLLM counts it in.
        max_model_len=options.max_context_tokens + 1,
        max_num_seqs=options.max_sequences,
        max_num_batched_tokens=max(options.batch_tokens, options.max_sequences),
        enable_chunked_prefill=True,
        enable_prefix_caching=True,
        block_size=block_tokens,
        num_gpu_blocks_override=blocks,
        kv_cache_memory_bytes=_UNUSED_BYTES if on_cpu else None,
        enforce_eager=on_cpu,
        async_scheduling=False,
        disable_hybrid_kv_cache_manager=True,
        disable_log_stats=True,
        logits_processors=["adapters.engines.vllm.keyed_sampling:KeyedSampling"],
        kv_transfer_config=KVTransferConfig(
            kv_connector="PddConnector",
            kv_connector_module_path="adapters.engines.vllm.connector",
            kv_role="kv_both",
        ),
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
