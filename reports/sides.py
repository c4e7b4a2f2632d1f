"""Cells opened for a comparison: the same requests on every side, in clusters shared by all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from reports.stats.sample import MOST_GROUPS

FEWEST_SESSIONS: Final = 8
_THREADS: Final = 2
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


def open_columns(chosen: Sequence[tuple[Run, str]]) -> list[Columns]:
    """Cells (run, cell name), two at a time. Raises ReportError for a cell without measured requests."""
    with ThreadPoolExecutor(_THREADS) as pool:
        columns = list(pool.map(Columns, [run for run, _ in chosen], [name for _, name in chosen]))
    for opened in columns:
        if not opened.rows:
            raise ReportError(f"{opened.run.path}: cell {opened.cell!r} has no measured requests")
    return columns


def open_sides(chosen: Sequence[tuple[Run, str]], columns: Sequence[Columns] | None = None) -> Sides:
    """Cells (run, cell name), the base first. `columns`: theirs, when opened already."""
    columns = columns or open_columns(chosen)
    cells = [run.cell(name) for run, name in chosen]
    cautions: list[str] = []
    sessions = [column.category("requests", "session_id") for column in columns]
    pairs: list[Codes] = [np.full(column.rows, -1, np.int32) for column in columns]
    rows: list[npt.NDArray[np.int64] | None] = [None] * len(columns)
    same_trace = _same_trace([run for run, _ in chosen])
    paired = same_trace and _overlap([set(labels) for _, labels in sessions])
    if paired:
        pairs, kept = _pair(columns)
        for index, (column, keep) in enumerate(zip(columns, kept, strict=True)):
            if missing := column.rows - int(keep.sum()):
                rows[index] = np.flatnonzero(keep)
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
            has_wan=cell.link is None or cell.link.driver != "none",
        )
        sides.append(Side(run, cell, cell.label or cell.name, frame, pair if keep is None else pair[keep]))
    return Sides(tuple(sides), paired, groups, tuple(cautions))


def windows_s(columns: Columns) -> dict[int, float]:
    """Measured window of each repetition: first intended send to last end."""
    found = {}
    intended, ended = columns.number("requests", "intended_ns"), columns.number("requests", "end_ns")
    for rep in columns.reps:
        here = columns.rep == rep
        last = ended[here] if (~np.isnan(ended[here])).any() else intended[here]
        found[rep] = max(float(np.nanmax(last) - np.nanmin(intended[here])) / 1e9, 1e-9)
    return found


def _same_trace(runs: Sequence[Run]) -> bool:
    """False only when the runs say that their traces differ."""
    return len({run.info.trace.digest for run in runs if run.info.trace is not None}) <= 1


def _overlap(sessions: Sequence[set[str]]) -> bool:
    return len(set.intersection(*sessions)) >= _SHARED * len(set.union(*sessions))


def shared_codes(texts: Sequence[pa.ChunkedArray[Any]]) -> tuple[list[Codes], int]:
    """Columns of texts numbered alike, null as -1; and how many numbers there are."""
    joined: Any = pa.chunked_array([chunk for text in texts for chunk in text.chunks], pa.string())
    encoded = joined.dictionary_encode()
    parts = [chunk.indices.fill_null(-1).to_numpy() for chunk in encoded.chunks]
    codes = np.concatenate([np.empty(0, np.int32), *parts])
    return np.split(codes, np.cumsum([len(text) for text in texts])[:-1]), int(codes.max(initial=-1)) + 1


def _pair(columns: Sequence[Columns]) -> tuple[list[Codes], list[npt.NDArray[np.bool_]]]:
    """Trace requests of all sides numbered alike, and the rows whose request every side has."""
    codes, count = shared_codes([column.text("trace_request") for column in columns])
    everywhere = np.ones(count, bool)
    for side in codes:
        here = np.zeros(count, bool)
        here[side] = True
        everywhere &= here
    return codes, [everywhere[side] for side in codes]


def _renumber(codes: Codes, labels: list[str], union: dict[str, int]) -> Codes:
    table = np.array([union.setdefault(label, len(union)) for label in labels], np.int32)
    return table[codes]


def _bounded(clusters: list[Codes]) -> tuple[list[Codes], int]:
    """At most MOST_GROUPS clusters, the same mapping on every side.

    Beyond, sessions are thrown together at random: intervals stay right, and cost stays bounded.
    """
    count = max(int(c.max(initial=-1)) for c in clusters) + 1
    if count <= MOST_GROUPS:
        return clusters, count
    table = np.random.default_rng(0).permutation(count).astype(np.int32) % MOST_GROUPS
    return [table[c] for c in clusters], MOST_GROUPS
