"""The KV of numbered slots: shared vLLM blocks where vLLM has them, host copies where it has not yet.

Block `i` of a slot holds positions [i, i + 1) * block_tokens. Blocks [0, len(pinned)) lie in vLLM's cache,
with a reference held here; those beyond, in host memory: imported, or copied from a block of which a
prefix only is wanted. While a vLLM request works for the slot, the request's own blocks are the truth.

A prefix is shared by reference as far as it fills blocks, and vLLM finds it again by hash when the next
request comes. The part of a block that hashes cannot find is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from adapters.engines.backend import ComputeError, Row, Sample
from adapters.engines.vllm.job import Job
from adapters.engines.vllm.kv_tensors import KvTensors
from harness.engine import EngineInfo, KvMismatch


@dataclass(slots=True)
class _Slot:
    pinned: list[Any] = field(default_factory=list)
    staged: dict[int, Any] = field(default_factory=dict)
    """(layers, bytes) u8 by block index."""
    job: Job | None = None


class KvStore:
    """Over the KV cache manager of vLLM's scheduler and the tensors of its worker."""

    def __init__(self, info: EngineInfo, manager: Any, tensors: KvTensors) -> None:
        self._info = info
        self._slots = [_Slot() for _ in range(info.max_sequences)]
        self._manager = manager
        self._pool = manager.block_pool
        self._tensors = tensors
        self._block_tokens = tensors.block_tokens

    # ------------------------------------------------------- as adapters.engines.backend

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def n_layers(self) -> int:
        return self._tensors.n_layers

    def compute(self, rows: Sequence[Row]) -> list[Sample | None]:
        raise ComputeError(f"{len(rows)} rows: vLLM makes its own batches")

    def read(self, slot: int, p0: int, p1: int) -> bytes:
        """The blocks that [p0, p1) touches, layer by layer."""
        blocks = range(p0 // self._block_tokens, self._n_blocks(p1))
        return bytes(self._copy(self._slots[slot], blocks).numpy().data)

    def write(self, slot: int, p0: int, p1: int, payload: memoryview) -> None:
        first = p0 // self._block_tokens
        shape = (self._tensors.n_layers, self._n_blocks(p1) - first, self._tensors.block_bytes)
        if len(payload) != shape[0] * shape[1] * shape[2]:
            raise KvMismatch(
                f"KV blob of [{p0}, {p1}) has {len(payload)} payload bytes, wanted "
                f"{shape[0]} layers x {shape[1]} blocks x {shape[2]}"
            )
        # The sender's first block has the positions before p0 as well: KV of the same ids.
        self._keep_blocks(self._slots[slot], first)
        whole = torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(shape)
        self._slots[slot].staged.update((first + i, whole[:, i]) for i in range(shape[1]))

    def truncate(self, slot: int, length: int) -> None:
        self._keep_blocks(self._slots[slot], self._n_blocks(length))

    def copy(self, source: int, target: int, length: int) -> None:
        lender, taker = self._slots[source], self._slots[target]
        whole = length // self._block_tokens
        device = self._device_blocks(lender)
        taker.pinned = list(device[:whole])
        self._pool.touch(taker.pinned)
        taker.staged = {i: lender.staged[i] for i in range(len(taker.pinned), whole)}
        if length % self._block_tokens:
            taker.staged[whole] = self._copy(lender, range(whole, whole + 1))[:, 0]

    def free(self) -> None:
        for slot in range(len(self._slots)):
            self.truncate(slot, 0)

    # ------------------------------------------------------------------ vLLM requests

    def lend(self, slot: int, held: int) -> dict[int, Any]:
        """What a request for the slot must bring along, as its blocks' hashes will not find it."""
        kv = self._slots[slot]
        whole = held // self._block_tokens
        if len(kv.pinned) > whole:
            # Its unfinished block would be written to by the request: the request gets a copy.
            kv.staged[whole] = self._copy(kv, range(whole, whole + 1))[:, 0]
            self._release(kv.pinned[whole:])
            del kv.pinned[whole:]
        return dict(kv.staged)

    def begin(self, slot: int, job: Job) -> None:
        """The slot's request holds its blocks now."""
        kv = self._slots[slot]
        self._release(kv.pinned)
        kv.pinned, kv.staged, kv.job = [], {}, job

    def end(self, slot: int, job: Job) -> None:
        """The request has ended; the blocks that the connector took over are the slot's."""
        kv = self._slots[slot]
        if kv.job is not None:
            kv.pinned, kv.job = job.blocks, None
        else:
            self._release(job.blocks)

    # ------------------------------------------------------------------------- blocks

    def _n_blocks(self, positions: int) -> int:
        return -(-positions // self._block_tokens)

    def _device_blocks(self, kv: _Slot) -> Sequence[Any]:
        if kv.job is None:
            return kv.pinned
        blocks: Sequence[Any] = self._manager.get_blocks(kv.job.request_id).blocks[0]
        return blocks

    def _copy(self, kv: _Slot, blocks: range) -> Any:
        """(layers, blocks, bytes) u8 in host memory."""
        device = self._device_blocks(kv)
        out = torch.empty((self._tensors.n_layers, len(blocks), self._tensors.block_bytes), dtype=torch.uint8)
        there = [i for i in blocks if i not in kv.staged]
        if there:
            rows = torch.tensor(there) - blocks.start
            out[:, rows] = self._tensors.read([device[i].block_id for i in there])
        for i in blocks:
            if i in kv.staged:
                out[:, i - blocks.start] = kv.staged[i]
        return out

    def _keep_blocks(self, kv: _Slot, n: int) -> None:
        self._release(kv.pinned[n:])
        del kv.pinned[n:]
        kv.staged = {i: block for i, block in kv.staged.items() if i < n}

    def _release(self, blocks: Sequence[Any]) -> None:
        """Give references back. What nobody holds any more must not be found again: it was evicted."""
        self._pool.free_blocks(reversed(blocks))
        gone = [b for b in blocks if b.ref_cnt == 0]
        self._pool.evict_blocks({b.block_id for b in gone})
