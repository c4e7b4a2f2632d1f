"""Requests of long input and an answer of a few tokens, each standing alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.generator.arrivals import zipf_weights
from workloads.generator.mixture import Mixture
from workloads.trace import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.generator.parameters import Parameters


@dataclass(frozen=True, slots=True, eq=False)
class Singles:
    """Columns of the single requests; document -1 is a cold one, held_blocks are taken from the document."""

    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    document: NDArray[np.int64]
    held_blocks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.input_tokens)


def draw_singles(p: Parameters, count: int, rng: np.random.Generator) -> Singles:
    """Draw `count` requests of the ultra-short class."""
    u = p.ultra_short
    if u is None or count == 0:
        none = np.zeros(0, np.int64)
        return Singles(none, none, none, none)
    outputs = rng.integers(u.output_min, u.output_max + 1, count)
    inputs = np.round(Mixture((u.input,)).at_normal(rng.standard_normal(count))).astype(np.int64)
    inputs = inputs.clip(p.block_size, p.context_tokens - 1 - u.output_max)
    held = (inputs * u.hit / p.block_size).astype(np.int64)
    document = rng.choice(u.documents, size=count, p=zipf_weights(u.documents, u.zipf))
    return Singles(inputs, outputs, np.where(held > 0, document, UNKNOWN), held)
