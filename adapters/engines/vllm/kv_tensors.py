"""vLLM's KV cache tensors as whole blocks of bytes.

Inside a block the layout belongs to the attention backend (on a CPU, K and V are packed by
instruction set), so a block is never cut: ranges move with the whole blocks they touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.engine import EngineError


class KvTensors:
    """The registered caches, (layer, block) -> bytes. All layers must have blocks of one size."""

    def __init__(self, caches: Mapping[str, Any], n_blocks: int, block_tokens: int) -> None:
        self.names = list(caches)
        self.block_tokens = block_tokens
        self._layers = [_blocks_first(name, cache, n_blocks) for name, cache in caches.items()]
        sizes = {layer[0].numel() * layer.element_size() for layer in self._layers}
        if len(sizes) != 1:
            raise EngineError(f"KV blocks of different sizes ({sorted(sizes)} bytes): hybrid models are not served")
        self.block_bytes: int = sizes.pop()
        """Of one layer's block."""

    @property
    def n_layers(self) -> int:
        return len(self._layers)

    def describe(self) -> str:
        """What two builds must share for one to read the other's blocks."""
        return " ".join(f"{tuple(x.shape[1:])}/{x.stride()[1:]}/{x.dtype}" for x in self._layers)

    def read(self, block_ids: Sequence[int], first_layer: int, end_layer: int) -> Any:
        """Host copy of layers [first_layer, end_layer) of these blocks: (layers, blocks, bytes) u8."""
        index = torch.tensor(block_ids, dtype=torch.long, device=self._layers[0].device)
        out = torch.empty((end_layer - first_layer, len(block_ids), self.block_bytes), dtype=torch.uint8)
        for row, layer in enumerate(self._layers[first_layer:end_layer]):
            blocks = layer.index_select(0, index).contiguous()
            out[row].copy_(blocks.view(len(block_ids), -1).view(torch.uint8))
        return out

    def write(self, block_ids: Sequence[int], blocks: Any) -> None:
        """Overwrite these blocks in all layers with (layers, blocks, bytes) u8."""
        for row, layer in enumerate(self._layers):
            index = torch.tensor(block_ids, dtype=torch.long, device=layer.device)
            data = blocks[row].contiguous().view(layer.dtype).view(len(block_ids), *layer.shape[1:])
            layer.index_copy_(0, index, data.to(layer.device))


def _blocks_first(name: str, cache: Any, n_blocks: int) -> Any:
    """A view of the cache with its dimension of `n_blocks` first."""
    if not isinstance(cache, torch.Tensor) or n_blocks not in cache.shape:
        raise EngineError(f"KV cache of {name} is not a tensor of {n_blocks} blocks: such layers are not served")
    return cache.movedim(list(cache.shape).index(n_blocks), 0)
