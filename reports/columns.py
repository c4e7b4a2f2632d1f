"""Columns of one cell's requests as numpy arrays, read when asked for.

Row i of every array is the same request: those of phase 'measure', in the order of repetition, shard
and row. Router columns are joined on `request_id`. Null is NaN. Instants are nanoseconds since the
first intended send of their repetition: exact in float64 for 104 days, and the same origin for both
tables, so that they differ only by the clocks' stated errors.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
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
Places = npt.NDArray[np.int32]

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
    start: int
    """Place of the repetition's first row here."""
    measured: Mask
    """Of the rows on disk, those that are rows here; warm-up is not."""
    joined: Places
    """For each handoffs row its row here, or -1."""
    rows: int

    def recorded(self, table: str) -> int:
        return len(self.measured if table == "requests" else self.joined)


class Columns:
    """Reads and caches columns of `run`, cell `cell`. May be read from several threads.

    Columns are read batch by batch into place: a batch stays in the processor's cache, and its memory is
    used again for the next.
    """

    def __init__(self, run: Run, cell: str) -> None:
        self.run: Final = run
        self.cell: Final = cell
        self._reps: Final[list[_Rep]] = []
        self.rows = 0
        for number in run.reps(cell):
            rep = self._open_rep(number)
            if rep is not None:
                self._reps.append(rep)
                self.rows += rep.rows
        self.rep: Final = np.repeat(
            np.array(self.reps, np.int16), np.array([rep.rows for rep in self._reps], np.int64)
        )
        """Repetition of each row."""
        self._lock: Final = threading.RLock()
        self._cache: Final[OrderedDict[tuple[str, str], Floats]] = OrderedDict()
        self._codes: Final[dict[tuple[str, str], tuple[Codes, list[str]]]] = {}
        self._masks: Final[dict[tuple[str, str, tuple[str, ...]], Mask]] = {}

    @property
    def reps(self) -> list[int]:
        return [rep.rep for rep in self._reps]

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
                for found, values in self._numbers(table, self._together(table, name)).items():
                    self._remember((table, found), values)
            self._cache.move_to_end(key)
            return self._cache[key]

    def category(self, table: str, name: str) -> tuple[Codes, list[str]]:
        """A column of few distinct texts: codes into the returned labels, -1 for null."""
        key = (table, name)
        with self._lock:
            if key not in self._codes:
                self._codes[key] = self._categories(table, name)
            return self._codes[key]

    def is_one_of(self, table: str, name: str, texts: tuple[str, ...]) -> Mask:
        """Whether a column of few distinct texts is one of `texts`."""
        key = (table, name, texts)
        with self._lock:
            if key not in self._masks:
                codes, labels = self.category(table, name)
                # The entry after the labels stands for null, whose code is -1.
                mask = np.array([*(label in texts for label in labels), False])[codes]
                mask.flags.writeable = False
                self._masks[key] = mask
            return self._masks[key]

    def text(self, name: str) -> pa.ChunkedArray[Any]:
        """A text column of 'requests'."""
        chunks: list[pa.Array[Any]] = []
        for rep in self._reps:
            for at, (column,) in self._batches("requests", [name], rep):
                chunks.append(column.filter(pa.array(rep.measured[at : at + len(column)])))
        return pa.chunked_array(chunks, pa.string())

    def _open_rep(self, rep: int) -> _Rep | None:
        names = ["request_id", "phase", "intended_ns"]
        masks, ids, origin = [np.empty(0, bool)], [], None
        for batch in self.run.batches("requests", self.cell, rep, names):
            here = pc.equal(batch.column("phase").cast(pa.string()), "measure").fill_null(False)
            first = pc.min(batch.column("intended_ns").filter(here)).as_py()
            origin = first if origin is None else origin if first is None else min(first, origin)
            masks.append(here.to_numpy(zero_copy_only=False))
            ids.append(batch.column("request_id").filter(here))
        if origin is None:
            return None
        measured = np.concatenate(masks)
        known = pa.concat_arrays(ids)
        router = pa.chunked_array(
            [batch.column(0) for batch in self.run.batches("handoffs", self.cell, rep, ["request_id"])],
            pa.string(),
        )
        where = pc.fill_null(pc.index_in(router, value_set=known), -1).to_numpy()
        start = sum(r.rows for r in self._reps)
        joined = np.where(where >= 0, where + start, -1).astype(np.int32)
        return _Rep(rep, int(origin), start, measured, joined, len(known))

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

    def _batches(self, table: str, names: list[str], rep: _Rep) -> Iterator[tuple[int, list[Any]]]:
        """Place of the first row on disk and the columns, batch by batch."""
        at = 0
        for batch in self.run.batches(table, self.cell, rep.rep, names):
            if at + batch.num_rows > rep.recorded(table):
                break
            yield at, batch.columns
            at += batch.num_rows
        if at != rep.recorded(table):
            raise ReportError(f"{self.run.path}: the run is still being written; read it when it has ended")

    def _placed(self, table: str, names: list[str]) -> Iterator[tuple[_Rep, list[Any], slice | Places, Mask]]:
        """Columns batch by batch: the `chosen` entries of each belong at `target` here."""
        for rep in self._reps:
            done = rep.start
            for at, columns in self._batches(table, names, rep):
                rows = slice(at, at + len(columns[0]))
                if table == "requests":
                    chosen = rep.measured[rows]
                    target = slice(done, done + int(chosen.sum()))
                    done = target.stop
                    yield rep, columns, target, chosen
                else:
                    chosen = rep.joined[rows] >= 0
                    yield rep, columns, rep.joined[rows][chosen], chosen

    def _numbers(self, table: str, names: list[str]) -> dict[str, Floats]:
        """Columns over all repetitions, router rows brought to their requests' places."""
        found = {name: np.full(self.rows, np.nan) for name in names}
        for rep, columns, target, chosen in self._placed(table, names):
            origin = pa.scalar(rep.origin_ns, pa.int64())
            for name, column in zip(names, columns, strict=True):
                read = pc.subtract(column, origin) if name in _INSTANTS[table] else column
                found[name][target] = read.to_numpy(zero_copy_only=False)[chosen]
        return found

    def _categories(self, table: str, name: str) -> tuple[Codes, list[str]]:
        codes = np.full(self.rows, -1, np.int32)
        labels: dict[str, int] = {}
        for _, (column,), target, chosen in self._placed(table, [name]):
            codes[target] = _encode(column, labels)[chosen]
        return codes.astype(np.int16) if len(labels) < 1 << 15 else codes, list(labels)


def _encode(column: Any, labels: dict[str, int]) -> Places:
    """Codes of a batch's texts in the labels of the whole cell (extended in place); null is -1."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    known = [labels.setdefault(text, len(labels)) for text in encoded.dictionary.to_pylist()]
    # The entry after the labels stands for null.
    table = np.array([*known, -1], np.int32)
    return np.asarray(table[encoded.indices.fill_null(len(known)).to_numpy()])
