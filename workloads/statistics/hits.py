"""Prefix-hit figures of one cache: means, the seven bands, tails, and where the missed tokens lie.

The hit rate of a request is hit tokens / prompt tokens, as engines report it (`cached_tokens` over the
prompt's length). The request mean weighs requests alike; the token-weighted rate is
sum(hit tokens) / sum(prompt tokens).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BAND_EDGES: Final = (0.0, 0.90, 0.95, 0.96, 0.97, 0.98, 0.99)
BAND_NAMES: Final = ("0-90 %", "90-95 %", "95-96 %", "96-97 %", "97-98 %", "98-99 %", "99-100 %")


class HitStatistics(msgspec.Struct, frozen=True):
    """Shares are of requests, 0..1; a band holds its lower edge."""

    cache: str
    request_mean: float
    token_weighted: float
    above_95_share: float
    below_50_share: float
    band_shares: tuple[float, ...]
    missed_tokens: int
    missed_by_top_1pct: float  # share of all missed tokens that the 1 % of requests missing most carry
    missed_by_top_10pct: float


def hit_rates(hit_tokens: NDArray[np.int64], input_tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hit rate of each request, 0..1."""
    rates: NDArray[np.float64] = hit_tokens / input_tokens
    return rates


def bands(rates: NDArray[np.float64]) -> NDArray[np.int64]:
    """Band of each rate: 0..6."""
    return np.searchsorted(np.array(BAND_EDGES), rates, side="right") - 1


def hit_statistics(
    cache: str, hit_tokens: NDArray[np.int64], input_tokens: NDArray[np.int64]
) -> HitStatistics:
    """Figures of one cache over all requests (at least one)."""
    rates = hit_rates(hit_tokens, input_tokens)
    missed = np.sort(input_tokens - hit_tokens)[::-1]
    total = int(missed.sum())
    counts = np.bincount(bands(rates), minlength=len(BAND_EDGES))
    return HitStatistics(
        cache=cache,
        request_mean=float(rates.mean()),
        token_weighted=float(hit_tokens.sum() / input_tokens.sum()),
        above_95_share=float((rates > 0.95).mean()),
        below_50_share=float((rates < 0.5).mean()),
        band_shares=tuple((counts / len(rates)).tolist()),
        missed_tokens=total,
        missed_by_top_1pct=_carried(missed, total, 0.01),
        missed_by_top_10pct=_carried(missed, total, 0.10),
    )


def _carried(descending: NDArray[np.int64], total: int, share: float) -> float:
    """Part of the total that the largest `share` of the values make up; a fractional value counts in part."""
    if total == 0:
        return 0.0
    wanted = share * len(descending)
    whole = int(wanted)
    part = float(descending[:whole].sum())
    if whole < len(descending):
        part += (wanted - whole) * float(descending[whole])
    return part / total
