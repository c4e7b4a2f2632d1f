"""One pass over the token offsets of a cell: what needs every token, in bounded memory.

Inter-token latencies are kept one by one up to `EXACT_TOKENS`; beyond, they are counted in bins 0.1 %
wide (the upper bits of a float32), so that a percentile is off by at most 0.05 %: below the error of
the receive stamps for any ITL of more than 10 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from reports.columns import Columns, Floats, Mask
from reports.stats.sample import Sample

EXACT_TOKENS: Final = 2_000_000
ALIGNED_BEFORE: Final = 24
ALIGNED_AFTER: Final = 40
_ALIGNED_ROWS: Final = 4000
_BATCH_ROWS: Final = 1 << 14
_SHIFT: Final = 13  # of 23 mantissa bits 10 stay: 1024 bins to the octave
_LOWEST: Final = int(np.float32(1e3).view(np.uint32)) >> _SHIFT  # 1 µs in ns; all below share a bin
_HIGHEST: Final = int(np.float32(4e12).view(np.uint32)) >> _SHIFT
_BINS: Final = _HIGHEST - _LOWEST + 1
pc: Final[Any] = pyarrow.compute  # its stubs refuse list arrays


@dataclass(frozen=True, slots=True)
class TokenScan:
    """`handoff_gap_ns`, `max_itl_ns`: per row, NaN where undefined. `itl`: pooled, in ms, chosen rows.

    `aligned`: ITL in ms around the switch of up to 4000 relayed requests, one a row, from
    ALIGNED_BEFORE tokens before the first token of MD to ALIGNED_AFTER after; NaN outside the stream.
    """

    handoff_gap_ns: Floats
    max_itl_ns: Floats
    itl: Sample
    aligned: Floats


def scan_tokens(
    columns: Columns, switch_index: Floats, groups: npt.NDArray[np.int32], group_count: int, chosen: Mask
) -> TokenScan:
    """`chosen`: rows whose tokens enter `itl` and `aligned`; `groups`: cluster of each row."""
    gap = np.full(columns.rows, np.nan)
    worst = np.full(columns.rows, np.nan)
    pool = _Pool(group_count, max(columns.reps, default=0) + 1, _expected_tokens(columns))
    aligned: list[Floats] = []
    rep_of = columns.rep
    at = 0
    for lists in _batches(columns):
        rows = slice(at, at + len(lists))
        at += len(lists)
        offsets = np.asarray(lists.flatten())
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        itl = np.diff(offsets, append=offsets[-1:])
        itl[ends[lengths > 0] - 1] = 0  # the step from one request to the next
        several = lengths > 1
        if several.any():
            worst_here = worst[rows]
            worst_here[several] = np.maximum.reduceat(itl, starts[several])
        switch = np.nan_to_num(switch_index[rows], nan=0).astype(np.int64)
        relayed = (switch > 0) & (switch < lengths)
        gap[rows][relayed] = itl[(starts + switch - 1)[relayed]]
        counted = np.repeat(chosen[rows] & several, lengths)
        counted[ends[lengths > 0] - 1] = False
        pool.add(itl, counted, np.repeat(groups[rows], lengths), np.repeat(rep_of[rows], lengths))
        room = _ALIGNED_ROWS - sum(len(a) for a in aligned)
        pick = np.flatnonzero(relayed & chosen[rows])[:room]
        aligned.append(_align(itl, starts[pick] + switch[pick], starts[pick], ends[pick]))
    width = ALIGNED_BEFORE + ALIGNED_AFTER + 1
    return TokenScan(gap, worst, pool.sample(), np.concatenate([np.empty((0, width)), *aligned]))


def _batches(columns: Columns) -> Iterator[pa.ListArray[Any]]:
    for rep in columns.reps:
        measured = columns.measured(rep)
        at = 0
        for batch in columns.run.batches("requests", columns.cell, rep, ["token_offsets_ns"], _BATCH_ROWS):
            lists: Any = batch.column(0).filter(pa.array(measured[at : at + batch.num_rows]))
            at += batch.num_rows
            yield lists


def _expected_tokens(columns: Columns) -> float:
    return float(np.nansum(columns.number("requests", "output_tokens")))


def _align(
    itl: npt.NDArray[np.int64],
    switches: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> Floats:
    """ITL rows around `switches`; entry j is the wait before token switch + j - ALIGNED_BEFORE."""
    where = switches[:, None] - 1 + np.arange(-ALIGNED_BEFORE, ALIGNED_AFTER + 1)
    inside = (where >= starts[:, None]) & (where < ends[:, None] - 1)
    found = np.full(where.shape, np.nan)
    found[inside] = itl[where[inside]] / 1e6
    return found


class _Pool:
    """Pooled inter-token latencies by group and repetition, one by one or in bins."""

    def __init__(self, groups: int, reps: int, expected: float) -> None:
        self._exact = expected <= EXACT_TOKENS
        self._reps = reps
        self._parts: list[tuple[Floats, npt.NDArray[np.int32], npt.NDArray[np.int16]]] = []
        self._bins = np.zeros(0 if self._exact else groups * reps * _BINS, np.int32)

    def add(
        self,
        itl_ns: npt.NDArray[np.int64],
        counted: Mask,
        groups: npt.NDArray[np.int32],
        reps: npt.NDArray[np.int16],
    ) -> None:
        if self._exact:
            self._parts.append((itl_ns[counted] / 1e6, groups[counted], reps[counted]))
            return
        bits = itl_ns.astype(np.float32).view(np.uint32) >> _SHIFT
        cell = np.clip(bits, _LOWEST, _HIGHEST).astype(np.int64) - _LOWEST
        cell += (groups.astype(np.int64) * self._reps + reps) * _BINS
        found, times = np.unique(cell[counted], return_counts=True)
        self._bins[found] += times.astype(np.int32)

    def sample(self) -> Sample:
        if self._exact:
            values, groups, reps = (
                np.concatenate([part[i] for part in self._parts]) if self._parts else np.empty(0)
                for i in range(3)
            )
            return Sample.of(values, groups.astype(np.int32), reps.astype(np.int16))
        filled = np.flatnonzero(self._bins)
        place, bin_ = np.divmod(filled, _BINS)
        edges = ((np.arange(_BINS + 1) + _LOWEST) << _SHIFT).astype(np.uint32).view(np.float32)
        middle = (edges[1:].astype(np.float64) + edges[:-1]) / 2e6
        group, rep = np.divmod(place, self._reps)
        return Sample.of(
            middle[bin_], group.astype(np.int32), rep.astype(np.int16), self._bins[filled].astype(np.int64)
        )
