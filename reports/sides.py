"""Cells opened for a comparison: the same requests on every side, in clusters shared by all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reports.columns import Codes, Columns
from reports.errors import ReportError
from reports.frame import Frame
from reports.run import Run
from reports.runinfo import CellInfo

MOST_GROUPS: Final = 256
"""Beyond, sessions are thrown together at random: intervals stay right, and cost stays bounded."""
FEWEST_SESSIONS: Final = 8
_SHARED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Side:
    """One cell of one run. `pairs`: number of each row's trace request, -1 where not paired."""

    run: Run
    cell: CellInfo
    label: str
    frame: Frame
    pairs: Codes


@dataclass(frozen=True, slots=True)
class Sides:
    """`paired`: every side replayed the same trace requests, and only common ones are kept."""

    sides: tuple[Side, ...]
    paired: bool
    groups: int
    cautions: tuple[str, ...]


def open_sides(chosen: Sequence[tuple[Run, str]]) -> Sides:
    """Open cells (run, cell name), the base first."""
    cells = [run.cell(name) for run, name in chosen]
    columns = [Columns(run, name) for run, name in chosen]
    for (run, name), column in zip(chosen, columns, strict=True):
        if not column.rows:
            raise ReportError(f"{run.path}: cell {name!r} has no measured requests")
    cautions: list[str] = []
    sessions = [column.category("requests", "session_id") for column in columns]
    pairs: list[Codes] = [np.full(column.rows, -1, np.int32) for column in columns]
    rows: list[npt.NDArray[np.bool_] | None] = [None] * len(columns)
    same_trace = _same_trace([run for run, _ in chosen])
    paired = same_trace and _overlap([set(labels) for _, labels in sessions])
    if paired:
        pairs, kept = _pair(columns)
        for index, (column, keep) in enumerate(zip(columns, kept, strict=True)):
            if missing := column.rows - int(keep.sum()):
                rows[index] = keep
                cautions.append(
                    f"{chosen[index][1]}: {missing} of {column.rows} requests were not replayed by every "
                    "side and are left out"
                )
    clusters = [codes for codes, _ in sessions]
    if paired:
        union: dict[str, int] = {}
        clusters = [_renumber(codes, labels, union) for codes, labels in sessions]
    if min(len(labels) for _, labels in sessions) < FEWEST_SESSIONS:
        cautions.append(
            f"only {min(len(labels) for _, labels in sessions)} sessions: requests are taken as independent, "
            "so intervals may be too narrow"
        )
        clusters = pairs if paired else [np.arange(column.rows, dtype=np.int32) for column in columns]
    clusters, groups = _bounded(clusters)
    sides = []
    for (run, _), cell, column, keep, pair, cluster in zip(
        chosen, cells, columns, rows, pairs, clusters, strict=True
    ):
        frame = Frame(
            column,
            slo=run.info.slo,
            windows_s=windows_s(column),
            groups=cluster,
            group_count=groups,
            rows=keep,
            cost_per_hour=cell.cost_per_hour,
        )
        sides.append(Side(run, cell, cell.label or cell.name, frame, pair if keep is None else pair[keep]))
    return Sides(tuple(sides), paired, groups, tuple(cautions))


def windows_s(columns: Columns) -> dict[int, float]:
    """Measured window of each repetition: as the runner recorded it, else first intended send to last end."""
    told = {rep.rep: rep for rep in columns.run.info.reps if rep.cell == columns.cell}
    found = {}
    intended, ended = columns.number("requests", "intended_ns"), columns.number("requests", "end_ns")
    for rep in columns.reps:
        info = told.get(rep)
        if info is not None and info.measure_start_ns is not None and info.measure_end_ns is not None:
            found[rep] = (info.measure_end_ns - info.measure_start_ns) / 1e9
            continue
        here = columns.rep == rep
        last = ended[here] if (~np.isnan(ended[here])).any() else intended[here]
        found[rep] = max(float(np.nanmax(last) - np.nanmin(intended[here])) / 1e9, 1e-9)
    return found


def _same_trace(runs: Sequence[Run]) -> bool:
    """False only when the runs say that their traces differ."""
    return len({run.info.trace.digest for run in runs if run.info.trace is not None}) <= 1


def _overlap(sessions: Sequence[set[str]]) -> bool:
    return len(set.intersection(*sessions)) >= _SHARED * len(set.union(*sessions))


def _pair(columns: Sequence[Columns]) -> tuple[list[Codes], list[npt.NDArray[np.bool_]]]:
    """Trace requests of all sides numbered alike, and the rows whose request every side has."""
    texts = [column.text("trace_request") for column in columns]
    joined: Any = pa.chunked_array([c for text in texts for c in text.chunks], pa.string())
    codes = joined.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int32)
    split = np.split(codes, np.cumsum([column.rows for column in columns])[:-1])
    count = int(codes.max(initial=-1)) + 1
    everywhere = np.ones(count, bool)
    for side in split:
        everywhere &= np.bincount(side, minlength=count) > 0
    return split, [everywhere[side] for side in split]


def _renumber(codes: Codes, labels: list[str], union: dict[str, int]) -> Codes:
    table = np.array([union.setdefault(label, len(union)) for label in labels], np.int32)
    return table[codes]


def _bounded(clusters: list[Codes]) -> tuple[list[Codes], int]:
    """At most MOST_GROUPS clusters, the same mapping on every side."""
    count = max(int(c.max(initial=-1)) for c in clusters) + 1
    if count <= MOST_GROUPS:
        return clusters, count
    table = np.random.default_rng(0).permutation(count).astype(np.int32) % MOST_GROUPS
    return [table[c] for c in clusters], MOST_GROUPS
