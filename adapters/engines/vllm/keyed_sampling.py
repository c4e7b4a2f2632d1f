"""Sampling keyed by (seed, answer index) inside vLLM's batch, as a logits processor.

vLLM itself is asked for temperature 0: where a job wants another, the draw is made here and every other
id is ruled out. Exact ties and draws are thus the same as with any other engine of this harness.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from adapters.engines.llamacpp.sampler import sample
from adapters.engines.vllm.job import ARGUMENT, Job


class KeyedSampling(LogitsProcessor):  # type: ignore[misc] # vLLM has no types where it is not installed
    """Rows of the batch that belong to a sampling job, with the live list of its answer so far."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory
        self._rows: dict[int, tuple[Job, list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, answer in batch_update.added:
            self._rows.pop(index, None)
            job = (params.extra_args or {}).get(ARGUMENT)
            if job is not None and job.decode is not None:
                self._rows[index] = (job, answer)
        for a, b, direction in batch_update.moved:
            moving, staying = self._rows.pop(a, None), self._rows.pop(b, None)
            if moving is not None:
                self._rows[b] = moving
            if staying is not None and direction == MoveDirectionality.SWAP:
                self._rows[a] = staying

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (job, answer) in self._rows.items():
            decode = job.decode
            assert decode is not None
            # Of a prefill chunk the result is not used: the last chunk's replaces it.
            drawn = sample(logits[row].float().cpu().numpy(), decode, decode.first_index + len(answer))
            job.margin = drawn.margin
            if decode.temperature > 0.0:
                logits[row] = float("-inf")
                logits[row, drawn.token] = 0.0
        return logits
