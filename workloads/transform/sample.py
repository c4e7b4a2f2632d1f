"""A smaller trace that looks like the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.errors import TraceError
from workloads.statistics.hits import BAND_EDGES, bands, hit_rates
from workloads.statistics.trace_statistics import infinite_hit_tokens
from workloads.transform.select import take_sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.trace import Trace


def sample_sessions(trace: Trace, count: int, *, seed: int) -> Trace:
    """`count` whole sessions, drawn in proportion from the seven bands of the sessions' mean hit rate."""
    total = len(trace.session_ids)
    if not 1 <= count <= total:
        raise TraceError(f"must be 1..{total}, the trace's sessions", field="sessions", value=count)
    stratum = _strata(trace)
    rng = np.random.default_rng(seed)
    taken = [
        rng.choice(np.flatnonzero(stratum == band), size=share, replace=False)
        for band, share in enumerate(_shares(np.bincount(stratum, minlength=len(BAND_EDGES)), count))
    ]
    kept = take_sessions(trace, np.sort(np.concatenate(taken)))
    return kept.warned(f"{count} of {total} sessions, stratified by hit band, seed {seed}")


def _strata(trace: Trace) -> NDArray[np.int64]:
    """Band of each session's mean hit rate under the infinite cache."""
    if not trace.header.prefix_known:
        return np.zeros(len(trace.session_ids), np.int64)
    rates = hit_rates(infinite_hit_tokens(trace), trace.turns.input_tokens)
    return bands(np.add.reduceat(rates, trace.turn_start[:-1]) / np.diff(trace.turn_start))


def _shares(sizes: NDArray[np.int64], count: int) -> list[int]:
    """`count` split in proportion to the sizes, by largest remainder."""
    exact = sizes * count / sizes.sum()
    shares = np.floor(exact).astype(np.int64)
    rest = count - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:rest]] += 1
    return [int(share) for share in shares]
