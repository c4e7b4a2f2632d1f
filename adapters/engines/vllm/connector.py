"""The KV connector that vLLM loads by module path.

Scheduler side: answers how much of a request's KV its job brings along (beyond vLLM's own prefix hit,
which counts first), and takes over the request's blocks when it ends. Worker side: writes what the job
brings into the request's blocks before the forward pass of the step that schedules it, and hands out
each layer's KV as it is computed, where somebody follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from adapters.engines.vllm.job import ARGUMENT, Job
from adapters.engines.vllm.kv_tensors import KvTensors
from adapters.engines.vllm.layer_stream import LayerStream


@dataclass
class Plan(KVConnectorMetadata):  # type: ignore[misc] # vLLM has no types where it is not installed
    """What the worker side has to do in this step."""

    loads: list[tuple[Job, list[int], int]] = field(default_factory=list)
    """To write: job, block ids, index of the first of them."""
    streams: list[tuple[LayerStream, int, int, list[int]]] = field(default_factory=list)
    """To tell of, layer by layer: positions computed in this step and the block ids they touch."""


class PddConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """See the module's docstring. One object per role; both run in the engine's thread."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._block_tokens: int = vllm_config.cache_config.block_size
        self._n_blocks: int = kv_cache_config.num_blocks
        self._plan = Plan()
        self._manager: Any = None
        self._jobs: dict[str, Job] = {}
        """By vLLM's name of their request, from its first step to its end."""
        self.tensors: KvTensors | None = None

    # ---------------------------------------------------------------- scheduler side

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        job = _job(request)
        if job is None or job.held <= num_computed_tokens:
            return 0, False
        first, last = num_computed_tokens // self._block_tokens, -(-job.held // self._block_tokens)
        if any(block not in job.staged for block in range(first, last)):
            return 0, False  # a pinned block is gone: recompute it rather than read another's
        return job.held - num_computed_tokens, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        job = _job(request)
        if job is None:
            return
        stats = request.prefill_stats
        job.request, job.local = request, stats.num_local_cached_tokens
        job.external = stats.num_external_cached_tokens
        job.base = job.counted = job.local + job.external
        if num_external_tokens > 0:
            first = (job.held - num_external_tokens) // self._block_tokens
            last = -(-job.held // self._block_tokens)
            self._plan.loads.append((job, blocks.get_block_ids()[0][first:last], first))
        # Should vLLM ever preempt the request, nothing is left to bring along: it recomputes.
        job.held = 0
        self._jobs[request.request_id] = job

    def build_connector_meta(self, scheduler_output: Any) -> Plan:
        plan, self._plan = self._plan, Plan()
        for request_id, n in scheduler_output.num_scheduled_tokens.items():
            job = self._jobs.get(request_id)
            if job is not None and job.stream is not None and job.stream.sinks:
                p0 = job.counted  # what the steps before have computed, or what was there
                first, last = p0 // self._block_tokens, -(-(p0 + n) // self._block_tokens)
                block_ids = self._manager.get_block_ids(request_id)[0][first:last]
                plan.streams.append((job.stream, p0, p0 + n, block_ids))
        return plan

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        job = _job(request)
        self._jobs.pop(request.request_id, None)
        if job is not None:
            job.computed = request.num_computed_tokens
            pool = self._manager.block_pool
            job.blocks = [pool.blocks[i] for i in block_ids[: -(-job.computed // self._block_tokens)]]
            pool.touch(job.blocks)
        return False, None

    # ------------------------------------------------------------------- worker side

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self.tensors = KvTensors(kv_caches, self._n_blocks, self._block_tokens)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        del forward_context, kwargs
        assert self.tensors is not None
        for job, block_ids, first in self._get_connector_metadata().loads:
            staged = [job.staged[first + i] for i in range(len(block_ids))]
            self.tensors.write(block_ids, torch.stack(staged, dim=1))
            job.staged = {}

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are complete before the forward pass."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        del kv_layer, attn_metadata, kwargs
        streams = self._get_connector_metadata().streams
        if streams:
            assert self.tensors is not None
            layer = self.tensors.names.index(layer_name)
            for stream, p0, p1, block_ids in streams:
                stream.send(layer, p0, p1, bytes(self.tensors.read_layer(layer, block_ids).numpy().data))

    def wait_for_save(self) -> None:
        """Readers copy what they read at once."""

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        del extra_config
        return True  # save_kv_layer must run between the layers


def _job(request: Any) -> Job | None:
    arguments = request.sampling_params.extra_args if request.sampling_params is not None else None
    return arguments.get(ARGUMENT) if arguments else None
