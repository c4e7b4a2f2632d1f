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
            raise EngineError(
                f"KV blocks of different sizes ({sorted(sizes)} bytes): hybrid models are not served"
            )
        self.block_bytes: int = sizes.pop()
        """Of one layer's block."""

    @property
    def n_layers(self) -> int:
        return len(self._layers)

    @property
    def kv_bytes_per_token(self) -> float:
        return self.n_layers * self.block_bytes / self.block_tokens

    def describe(self) -> str:
        """What two builds must share for one to read the other's blocks."""
        shapes = " ".join(f"{tuple(x.shape[1:])}/{x.stride()[1:]}/{x.dtype}" for x in self._layers)
        return f"{self.block_tokens} tokens a block: {shapes}"

    def read(self, block_ids: Sequence[int]) -> Any:
        """Host copy of these blocks: (layers, blocks, bytes) u8."""
        return torch.stack([self.read_layer(layer, block_ids) for layer in range(len(self._layers))])

    def read_layer(self, layer: int, block_ids: Sequence[int]) -> Any:
        """Host copy of one layer of these blocks: (blocks, bytes) u8."""
        cache = self._layers[layer]
        index = torch.tensor(block_ids, dtype=torch.long, device=cache.device)
        blocks = cache.index_select(0, index).contiguous()
        return blocks.view(len(block_ids), -1).view(torch.uint8).cpu()

    def write(self, block_ids: Sequence[int], blocks: Any) -> None:
        """Overwrite these blocks in all layers with (layers, blocks, bytes) u8."""
        for row, layer in enumerate(self._layers):
            index = torch.tensor(block_ids, dtype=torch.long, device=layer.device)
            data = blocks[row].contiguous().view(layer.dtype).view(len(block_ids), *layer.shape[1:])
            layer.index_copy_(0, index, data.to(layer.device))


def _blocks_first(name: str, cache: Any, n_blocks: int) -> Any:
    """A view of the cache with its dimension of `n_blocks` first."""
    if not isinstance(cache, torch.Tensor) or n_blocks not in cache.shape:
        raise EngineError(
            f"KV cache of {name} is not a tensor of {n_blocks} blocks: such layers are not served"
        )
    return cache.movedim(list(cache.shape).index(n_blocks), 0)
