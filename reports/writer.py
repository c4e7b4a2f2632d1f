"""Writing one table of a run, safely against kill -9 and a full disk.

Belongs to one process; callable from asyncio, threads and gevent alike: it starts no thread and no
timer. Rows are flushed when `flush_rows` are pending, or when the oldest pending row is `flush_s` old
at the next `write` or `tick`; call `tick()` once in a while where rows are rare. See reports.shard for
the files.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from reports.errors import RecordingError, ReportError
from reports.schema import Table
from reports.shard import Shard, finish_shard

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class TableWriter:
    """Appends rows of `table`; each flush is one complete record batch on disk.

    `metadata` goes into the schema's metadata (the process's clock anchor belongs there).
    """

    def __init__(
        self,
        run_dir: Path,
        table: Table,
        *,
        cell: str,
        rep: int,
        shard: str,
        metadata: Mapping[str, str] | None = None,
        flush_rows: int = 2000,
        flush_s: float = 1.0,
    ) -> None:
        if flush_rows < 1:
            raise ReportError(f"flush_rows {flush_rows}: at least 1")
        self.shard: Final = Shard(run_dir, table.name, cell, rep, shard)
        schema = table.arrow()
        self._schema: Final = schema.with_metadata({**(schema.metadata or {}), **(metadata or {})})
        self._names: Final = frozenset(schema.names)
        self._required: Final = tuple(c.name for c in table.columns if not c.nullable)
        self._flush_rows: Final = flush_rows
        self._flush_s: Final = flush_s
        self._lock: Final = threading.Lock()
        self._rows: list[Mapping[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []
        self._pending = 0
        self._oldest = 0.0
        self._error: RecordingError | None = None
        self._closed = False
        self.flushed_rows = 0
        self._file = self._create()
        self._good_bytes = 0
        with self._lock:
            self._append(self._schema.serialize())

    def write(self, row: Mapping[str, Any]) -> None:
        """Take one row; missing nullable columns are null. Unknown or missing names raise ReportError."""
        unknown = row.keys() - self._names
        if unknown:
            raise ReportError(f"{self.shard.table}: no column {min(unknown)!r}")
        for name in self._required:
            if row.get(name) is None:
                raise ReportError(f"{self.shard.table}.{name}: must not be null")
        with self._lock:
            self._check_open()
            self._rows.append(row)
            self._took(1)

    def write_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Take many rows as equally long columns (lists, numpy or Arrow arrays)."""
        batch = self._batch_of_columns(columns)
        with self._lock:
            self._check_open()
            self._seal_rows()
            self._batches.append(batch)
            self._took(batch.num_rows)

    def tick(self) -> None:
        """Flush when the oldest pending row is older than `flush_s`."""
        with self._lock:
            if self._pending and time.monotonic() - self._oldest >= self._flush_s:
                self._flush()

    def flush(self) -> None:
        """Put all pending rows on disk now."""
        with self._lock:
            self._check_open()
            self._flush()

    def close(self, *, finish: bool = True) -> None:
        """Flush and finish the shard; idempotent. After a failed write nothing is finished, nothing lost.

        `finish=False` leaves the stream for `reports.shard.finish_abandoned`, where the time until the
        process ends matters.
        """
        with self._lock:
            if self._closed:
                return
            try:
                if self._error is None:
                    self._flush()
                    self._append(_END_OF_STREAM)
            finally:
                self._closed = True
                self._rows, self._batches, self._pending = [], [], 0
                os.close(self._file)
            if finish and self._error is None:
                finish_shard(self.shard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _create(self) -> int:
        try:
            self.shard.folder.mkdir(parents=True, exist_ok=True)
            recorded = self.shard.parquet.exists() or self.shard.stream.exists()
            if not recorded:
                file = os.open(self.shard.stream, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
        except OSError as error:
            raise RecordingError(f"{self.shard.stream}: cannot create ({error.strerror})") from error
        raise ReportError(
            f"{self.shard.folder}: shard {self.shard.name!r} exists already; each process, cell "
            "and rep needs its own"
        )

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise ReportError(f"{self.shard.table}/{self.shard.name}: written after close")

    def _took(self, rows: int) -> None:
        now = time.monotonic()
        if not self._pending:
            self._oldest = now
        self._pending += rows
        if self._pending >= self._flush_rows or now - self._oldest >= self._flush_s:
            self._flush()

    def _seal_rows(self) -> None:
        """Turn pending rows into a batch; rows of a wrong type are reported, the others kept."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        try:
            self._batches.append(pa.RecordBatch.from_pylist(rows, schema=self._schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
            problem: ReportError | None = None
            for row in rows:
                try:
                    self._batches.append(pa.RecordBatch.from_pylist([row], schema=self._schema))
                except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as error:
                    problem = problem or ReportError(f"{self.shard.table}: {error} in row {dict(row)!r:.300}")
                    self._pending -= 1
            assert problem is not None
            raise problem from None

    def _batch_of_columns(self, columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
        unknown = columns.keys() - self._names
        if unknown:
            raise ReportError(f"{self.shard.table}: no column {min(unknown)!r}")
        lengths = {len(values) for values in columns.values()}
        if len(lengths) != 1:
            raise ReportError(f"{self.shard.table}: columns of unequal length {sorted(lengths)}")
        (length,) = lengths
        arrays = []
        for field in self._schema:
            values = columns.get(field.name)
            try:
                array = pa.nulls(length, field.type) if values is None else pa.array(values, field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as error:
                raise ReportError(f"{self.shard.table}.{field.name}: {error}") from error
            if not field.nullable and array.null_count:
                raise ReportError(f"{self.shard.table}.{field.name}: must not be null")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _flush(self) -> None:
        if self._error is not None:
            return
        try:
            self._seal_rows()
        finally:
            if self._batches:
                batches, self._batches = self._batches, []
                batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
                self._append(batch.serialize())
                self.flushed_rows += batch.num_rows
            self._pending = 0

    def _append(self, message: pa.Buffer | bytes) -> None:
        """Write a whole IPC message or, when that fails, none of it."""
        view = memoryview(message)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            lost = self._pending
            self._pending = 0
            os.ftruncate(self._file, self._good_bytes)
            self._error = RecordingError(
                f"{self.shard.stream}: cannot write ({error.strerror}); {self.flushed_rows} rows are kept, "
                f"{lost} are lost, recording of {self.shard.table} stops"
            )
            raise self._error from error
        self._good_bytes += len(memoryview(message))
