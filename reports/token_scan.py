"""One pass over the token offsets of a cell: what needs every token, in bounded memory.

Inter-token latencies are kept one by one up to `EXACT_TOKENS`; beyond, they are counted in bins 0.2 %
wide (the upper bits of a float32), so that a percentile is off by at most 0.1 %: the error of the
receive stamps (some µs) for an ITL of a few ms.
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
from reports.stats.sample import Sample, Sorted

EXACT_TOKENS: Final = 2_000_000
ALIGNED_BEFORE: Final = 24
ALIGNED_AFTER: Final = 40
_ALIGNED_ROWS: Final = 4000
_BATCH_TOKENS: Final = 1 << 18  # a few MB at a time, of which the processor's cache holds the working part
_SHIFT: Final = 14  # of 23 mantissa bits 9 stay: 512 bins to the octave
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
    expected = _expected_tokens(columns)
    pool = _Pool(group_count, expected)
    batch_rows = int(np.clip(_BATCH_TOKENS * columns.rows / max(expected, 1.0), 1 << 10, 1 << 16))
    aligned: list[Floats] = []
    at = 0
    for rep in columns.reps:
        for lists in _batches(columns, rep, batch_rows):
            rows = slice(at, at + len(lists))
            at += len(lists)
            offsets = np.asarray(lists.flatten())
            lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
            ends = np.cumsum(lengths)
            starts = ends - lengths
            itl = np.zeros_like(offsets)
            np.subtract(offsets[1:], offsets[:-1], out=itl[:-1])
            itl[ends[lengths > 0] - 1] = 0  # the step from one request to the next
            several = lengths > 1
            if several.any():
                worst[rows][several] = np.maximum.reduceat(itl, starts[several])
            switch = np.nan_to_num(switch_index[rows], nan=0).astype(np.int64)
            relayed = (switch > 0) & (switch < lengths)
            gap[rows][relayed] = itl[(starts + switch - 1)[relayed]]
            pool.add(itl, ends, lengths, _Rows(chosen[rows], groups[rows], rep))
            room = _ALIGNED_ROWS - sum(len(a) for a in aligned)
            if room:
                pick = np.flatnonzero(relayed & chosen[rows])[:room]
                aligned.append(_align(itl, starts[pick] + switch[pick], starts[pick], ends[pick]))
        pool.end_rep()
    width = ALIGNED_BEFORE + ALIGNED_AFTER + 1
    return TokenScan(gap, worst, pool.sample(), np.concatenate([np.empty((0, width)), *aligned]))


def _batches(columns: Columns, rep: int, batch_rows: int) -> Iterator[pa.ListArray[Any]]:
    measured = columns.measured(rep)
    at = 0
    for batch in columns.run.batches("requests", columns.cell, rep, ["token_offsets_ns"], batch_rows):
        lists: Any = batch.column(0)
        here = measured[at : at + len(lists)]
        at += len(lists)
        yield lists if here.all() else lists.filter(pa.array(here))


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
    """Pooled inter-token latencies by group and by repetition, one by one or in bins."""

    def __init__(self, groups: int, expected: float) -> None:
        self._exact = expected <= EXACT_TOKENS
        self._parts: list[tuple[Floats, npt.NDArray[np.int32], npt.NDArray[np.int16]]] = []
        # One row more than there are groups: what is not counted goes there.
        self._table = np.zeros((0 if self._exact else groups + 1, _BINS), np.int64)
        self._groups = groups
        self._by_rep: list[npt.NDArray[np.int64]] = []

    def add(
        self,
        itl_ns: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        rows: _Rows,
    ) -> None:
        """`itl_ns` is the wait after each token; the one after a request's last token is none."""
        last = ends[lengths > 0] - 1
        if self._exact:
            counted = np.repeat(rows.chosen, lengths)
            counted[last] = False
            groups, reps = np.repeat(rows.groups, lengths), np.full(len(counted), rows.rep, np.int16)
            self._parts.append((itl_ns[counted] / 1e6, groups[counted], reps[counted]))
            return
        bins = itl_ns.astype(np.float32).view(np.int32)
        bins >>= _SHIFT
        np.clip(bins, _LOWEST, _HIGHEST, out=bins)
        group = np.where(rows.chosen, rows.groups, self._groups).astype(np.int64)
        cells = np.repeat(group * _BINS - _LOWEST, lengths)
        cells += bins
        cells[last] = self._groups * _BINS
        np.add.at(self._table.reshape(-1), cells, 1)

    def end_rep(self) -> None:
        """What came since the last call was one repetition."""
        self._by_rep.append(self._table[:-1].sum(axis=0) - sum(self._by_rep))

    def sample(self) -> Sample:
        if self._exact:
            values, groups, reps = (
                np.concatenate([part[i] for part in self._parts]) if self._parts else np.empty(0)
                for i in range(3)
            )
            return Sample.of(values, groups.astype(np.int32), reps.astype(np.int16))
        edges = ((np.arange(_BINS + 1) + _LOWEST) << _SHIFT).astype(np.uint32).view(np.float32)
        middle = (edges[1:].astype(np.float64) + edges[:-1]) / 2e6
        # Bins in the order of value, groups within a bin: ascending without a sort.
        table = self._table[:-1]
        bin_, group = np.nonzero(table.T)
        by_rep = tuple(Sorted(middle[rep > 0], rep[rep > 0]) for rep in self._by_rep if rep.any())
        return Sample(middle[bin_], group.astype(np.int32), table[group, bin_], by_rep)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a batch's requests have in common with the pool."""

    chosen: Mask
    groups: npt.NDArray[np.int32]
    rep: int
