"""Slots of chained states, and steps that last as long as the modelled accelerator's."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import numpy as np

from adapters.engines.backend import Row, Sample
from adapters.engines.emulated.chain import WORD_BYTES, Chain
from harness.costs.deployment import Deployment, attention_pairs
from harness.engine import EngineInfo, EngineOptions, KvMismatch

_BUILD = "emulated 1"
_SPECIAL_IDS = 3
_HOST_S = 0.01
"""Steps that follow one another within so long are back to back; a longer gap was idle."""


class EmulatedDevices:
    """The `adapters.engines.backend.Backend` of a modelled accelerator."""

    def __init__(self, deployment: Deployment, options: EngineOptions) -> None:
        self._deployment = deployment
        self._time_scale = options.time_scale
        self._byte_scale = options.byte_scale
        self._chains = [Chain() for _ in range(options.max_sequences)]
        self._due_s = 0.0
        """When the last step was over on the modelled devices."""
        identity = f"{_BUILD} {deployment.name.partition(' on ')[0]} x{options.byte_scale}"
        self._info = EngineInfo(
            engine="emulated",
            build=_BUILD,
            model=options.model,
            model_hash=hashlib.sha256(options.model.encode()).hexdigest(),
            layout_hash=hashlib.sha256(identity.encode()).hexdigest(),
            vocab_size=deployment.vocab_size,
            first_normal_id=_SPECIAL_IDS,
            max_context_tokens=options.max_context_tokens,
            max_sequences=options.max_sequences,
            kv_bytes_per_token=deployment.kv_bytes_per_token * options.byte_scale,
            emulated=True,
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    def compute(self, rows: Sequence[Row]) -> list[Sample | None]:
        now_s = time.perf_counter()
        # An accelerator does not wait for its host between two steps, which runs ahead of it.
        start_s = self._due_s if now_s - self._due_s < _HOST_S else now_s
        self._due_s = start_s + self._step_s(rows) * self._time_scale
        samples: list[Sample | None] = []
        for row in rows:
            chain = self._chains[row.slot]
            chain.compute(row.ids)
            samples.append(None if row.decode is None else self._sample(chain, row))
        time.sleep(max(0.0, self._due_s - time.perf_counter()))
        return samples

    def read(self, slot: int, p0: int, p1: int) -> memoryview:
        payload = np.zeros(self._payload_bytes(p0, p1), np.uint8)
        payload[: (p1 - p0) * WORD_BYTES] = self._chains[slot].states(p0, p1).view(np.uint8)
        return payload.data

    def write(self, slot: int, p0: int, p1: int, payload: memoryview) -> None:
        wanted = self._payload_bytes(p0, p1)
        if len(payload) != wanted:
            raise KvMismatch(f"KV payload of [{p0}, {p1}) has {len(payload)} bytes, expected {wanted}")
        states = np.frombuffer(payload, np.uint8, (p1 - p0) * WORD_BYTES).tobytes()
        self._chains[slot].append(np.frombuffer(states, np.uint64))

    def truncate(self, slot: int, length: int) -> None:
        chain = self._chains[slot]
        chain.length = min(chain.length, length)

    def copy(self, source: int, target: int, length: int) -> None:
        self._chains[target].append(self._chains[source].states(0, length))

    def free(self) -> None:
        self._chains.clear()

    def _step_s(self, rows: Sequence[Row]) -> float:
        tokens = pairs = context_tokens = 0
        for row in rows:
            n = len(row.ids)
            tokens += n
            if n == 1:
                context_tokens += row.start + 1
            else:
                pairs += attention_pairs(n, row.start)
        return self._deployment.step_s(tokens, pairs, context_tokens)

    def _sample(self, chain: Chain, row: Row) -> Sample:
        assert row.decode is not None
        ids = self._info.vocab_size - _SPECIAL_IDS
        return Sample(_SPECIAL_IDS + chain.sample(row.decode, row.index, ids), None)

    def _payload_bytes(self, p0: int, p1: int) -> int:
        """The modelled size, scaled; never less than the states themselves."""
        return max(round(self._deployment.kv_bytes(p0, p1) * self._byte_scale), (p1 - p0) * WORD_BYTES)
