"""Sampling keyed by (seed, answer index): the same logits give the same id on whichever worker.

Temperature 0 is argmax (the lowest id among equals). Otherwise the inverse of the cumulative
distribution at one uniform number, which depends on seed and index only.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

from adapters.engines.backend import Sample
from harness.engine import Decode

_KEY = struct.Struct("<Qq")


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1), uniform over seeds and indices; any int is a seed, modulo 2**64."""
    digest = hashlib.blake2b(_KEY.pack(seed & 0xFFFF_FFFF_FFFF_FFFF, index), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def sample(logits: npt.NDArray[np.float32], decode: Decode, index: int) -> Sample:
    """Draw answer token `index` from `logits` (vocab_size,)."""
    if decode.temperature <= 0.0:
        best = int(logits.argmax())
        others = logits.copy()
        others[best] = -np.inf
        return Sample(best, float(logits[best] - others.max()))
    scaled = (logits.astype(np.float64) - float(logits.max())) / decode.temperature
    cumulative = np.exp(scaled).cumsum()
    drawn = uniform(decode.seed, index) * cumulative[-1]
    return Sample(min(int(cumulative.searchsorted(drawn, side="right")), len(logits) - 1), None)
