"""Columns of one cell's requests as numpy arrays, read when asked for.

Row i of every array is the same request: those of phase 'measure', in the order of repetition, shard
and row. Router columns are joined on `request_id`. Null is NaN. Instants are nanoseconds since the
first intended send of their repetition: exact in float64 for 104 days, and the same origin for both
tables, so that they differ only by the clocks' stated errors.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from reports.errors import ReportError
from reports.run import Run
from reports.schema import HANDOFFS, REQUESTS

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.signedinteger[Any]]
Mask = npt.NDArray[np.bool_]

pc: Final[Any] = pyarrow.compute  # its stubs refuse chunked arrays
_CACHE_BYTES: Final = 256 << 20
_SMALL_BYTES: Final = 64 << 20
_NUMERIC: Final = {
    table.name: [c.name for c in table.columns if c.type in (pa.int64(), pa.float64())]
    for table in (REQUESTS, HANDOFFS)
}
_INSTANTS: Final = {
    table.name: frozenset(
        c.name for c in table.columns if c.name.endswith("_ns") and c.unit == "ns" and c.type == pa.int64()
    )
    - {"connect_ns", "estimated_transfer_ns", "copy_ns"}
    for table in (REQUESTS, HANDOFFS)
}


@dataclass(frozen=True, slots=True)
class _Rep:
    rep: int
    origin_ns: int
    recorded: int
    """Rows on disk, warm-up included."""
    measured: Mask
    joined: npt.NDArray[np.int64]
    """For each handoffs row the requests row it belongs to, or -1."""


class Columns:
    """Reads and caches columns of `run`, cell `cell`. May be read from several threads."""

    def __init__(self, run: Run, cell: str) -> None:
        self.run: Final = run
        self.cell: Final = cell
        self._reps: Final = [rep for r in run.reps(cell) if (rep := self._open_rep(r)) is not None]
        self._lock: Final = threading.RLock()
        self._cache: Final[OrderedDict[tuple[str, str], Floats]] = OrderedDict()
        self._codes: Final[dict[tuple[str, str], tuple[Codes, list[str]]]] = {}
        self.rows: Final = sum(int(rep.measured.sum()) for rep in self._reps)

    @property
    def reps(self) -> list[int]:
        return [rep.rep for rep in self._reps]

    @property
    def rep(self) -> npt.NDArray[np.int16]:
        """Repetition of each row."""
        parts = [np.full(int(rep.measured.sum()), rep.rep, np.int16) for rep in self._reps]
        return np.concatenate(parts) if parts else np.empty(0, np.int16)

    def origin_ns(self, rep: int) -> int:
        """Epoch of the repetition's instants."""
        return next(r.origin_ns for r in self._reps if r.rep == rep)

    def measured(self, rep: int) -> Mask:
        """Which recorded rows of the repetition are rows here."""
        return next(r.measured for r in self._reps if r.rep == rep)

    def number(self, table: str, name: str) -> Floats:
        """A numeric column of 'requests' or 'handoffs'."""
        key = (table, name)
        with self._lock:
            if key not in self._cache:
                for found, values in self._gather(table, self._together(table, name), self._numbers).items():
                    self._remember((table, found), values)
            self._cache.move_to_end(key)
            return self._cache[key]

    def category(self, table: str, name: str) -> tuple[Codes, list[str]]:
        """A column of few distinct texts: codes into the returned labels, -1 for null."""
        key = (table, name)
        with self._lock:
            if key not in self._codes:
                labels: dict[str, int] = {}
                found = self._gather(table, [name], lambda _, __, ___, column: _encode(column, labels))[name]
                small = len(labels) < 1 << 15
                known = np.nan_to_num(found, copy=False, nan=-1)
                codes: Codes = known.astype(np.int16) if small else known.astype(np.int32)
                self._codes[key] = (codes, list(labels))
            return self._codes[key]

    def text(self, name: str) -> pa.ChunkedArray[Any]:
        """A text column of 'requests'."""
        chunks: list[pa.Array[Any]] = []
        for rep in self._reps:
            column = self._read("requests", [name], rep)[name]
            chunks.extend(column.filter(pa.array(rep.measured)).chunks)
        return pa.chunked_array(chunks, pa.string())

    def _open_rep(self, rep: int) -> _Rep | None:
        head = self.run.table("requests", self.cell, rep, ["request_id", "phase", "intended_ns"])
        measured = np.asarray(pc.equal(head["phase"].cast(pa.string()), "measure"))
        if not measured.any():
            return None
        origin = pc.min(head["intended_ns"].filter(pa.array(measured))).as_py()
        router = self.run.table("handoffs", self.cell, rep, ["request_id"])["request_id"]
        where = pc.index_in(router, value_set=head["request_id"].combine_chunks())
        joined = pc.fill_null(where, -1).to_numpy().astype(np.int64)
        return _Rep(rep, int(origin), head.num_rows, measured, joined)

    def _remember(self, key: tuple[str, str], values: Floats) -> None:
        """Keep a column as long as there is room; the one just asked for stays."""
        values.flags.writeable = False
        self._cache[key] = values
        while sum(v.nbytes for v in self._cache.values()) > _CACHE_BYTES and len(self._cache) > 1:
            self._cache.popitem(last=False)

    def _together(self, table: str, name: str) -> list[str]:
        """Columns to read along with `name`, which comes last: all of a small run, itself of a large one."""
        numeric = [n for n in _NUMERIC[table] if n != name]
        return [*numeric, name] if self.rows * (len(numeric) + 1) * 8 <= _SMALL_BYTES else [name]

    def _read(self, table: str, names: list[str], rep: _Rep) -> pa.Table:
        columns = self.run.table(table, self.cell, rep.rep, names)
        if columns.num_rows != (rep.recorded if table == "requests" else len(rep.joined)):
            raise ReportError(f"{self.run.path}: the run is still being written; read it when it has ended")
        return columns

    @staticmethod
    def _numbers(table: str, name: str, rep: _Rep, column: pa.ChunkedArray[Any]) -> Floats:
        if name in _INSTANTS[table]:
            column = pc.subtract(column, pa.scalar(rep.origin_ns, pa.int64()))
        return column.to_numpy().astype(np.float64)

    def _gather(
        self,
        table: str,
        names: list[str],
        convert: Callable[[str, str, _Rep, pa.ChunkedArray[Any]], Floats],
    ) -> dict[str, Floats]:
        """Converted columns over all repetitions, router rows brought to their requests' places."""
        parts: dict[str, list[Floats]] = {name: [] for name in names}
        for rep in self._reps:
            columns = self._read(table, names, rep)
            for name in names:
                values = convert(table, name, rep, columns[name])
                if table == "handoffs":
                    here = rep.joined >= 0
                    spread = np.full(rep.recorded, np.nan)
                    spread[rep.joined[here]] = values[here]
                    values = spread
                parts[name].append(values[rep.measured])
        return {name: np.concatenate(found) if found else np.empty(0) for name, found in parts.items()}


def _encode(column: pa.ChunkedArray[Any], labels: dict[str, int]) -> Floats:
    """Codes of one repetition's texts in the labels of the whole cell (extended in place); null is NaN."""
    parts = []
    for chunk in column.chunks:
        encoded: Any = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        table = np.array(
            [labels.setdefault(text, len(labels)) for text in encoded.dictionary.to_pylist()] or [0]
        )
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        known = ~np.isnan(codes) if codes.dtype.kind == "f" else np.ones(len(codes), bool)
        out = np.full(len(codes), np.nan)
        out[known] = table[codes[known].astype(np.int64)]
        parts.append(out)
    return np.concatenate(parts) if parts else np.empty(0)
