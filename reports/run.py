"""Reading a run: finished, interrupted, or still being written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from reports.errors import ReportError
from reports.runinfo import CellInfo, RunInfo, RunState
from reports.schema import SCHEMA_VERSION, TABLES
from reports.shard import Shard, find_shards, stream_batches, stream_schema

# Few distinct values each: read as dictionaries, at a fraction of the memory.
_CATEGORICAL: Final = frozenset(
    (
        "tenant",
        "phase",
        "status",
        "clock_source",
        "shard",
        "pipeline",
        "handoff_mode",
        "handoff_payload",
        "prefill_worker",
        "relay_worker",
        "main_worker",
        "outcome",
        "session_id",
        "direction",
        "driver",
        "profile",
        "worker",
        "role",
        "cluster",
    )
)


class Run:
    """One run directory. Rows are read when asked for; nothing on disk is changed.

    Which shards there are is looked up once, so that a run that is still growing does not change shape.
    """

    def __init__(self, path: Path, info: RunInfo) -> None:
        self.path: Final = path
        self.info: Final = info
        self._shards: Final[dict[str, list[Shard]]] = {}

    @classmethod
    def open(cls, path: Path) -> Self:
        if not path.is_dir():
            raise ReportError(f"{path}: no such run directory")
        return cls(path, RunInfo.read(path))

    @property
    def cells(self) -> tuple[CellInfo, ...]:
        return self.info.cells

    def cell(self, name: str) -> CellInfo:
        for cell in self.cells:
            if cell.name == name:
                return cell
        raise ReportError(f"{self.path}: no cell {name!r}; cells: {', '.join(c.name for c in self.cells)}")

    @property
    def partial(self) -> bool:
        """Whether rows are missing for certain: cut short, or shards never finished."""
        return self.info.state is not RunState.COMPLETE or bool(self.unfinished())

    def unfinished(self) -> list[Shard]:
        """Shards whose writer has not ended properly (or not yet)."""
        return [s for name in TABLES for s in self.shards(name) if not s.parquet.exists()]

    def shards(self, table: str, cell: str | None = None, rep: int | None = None) -> list[Shard]:
        if table not in TABLES:
            raise ReportError(f"no table {table!r}; tables: {', '.join(TABLES)}")
        if table not in self._shards:
            self._shards[table] = find_shards(self.path, table)
        return [
            s
            for s in self._shards[table]
            if (cell is None or s.cell == cell) and (rep is None or s.rep == rep)
        ]

    def reps(self, cell: str) -> list[int]:
        """Repetitions of a cell that left requests."""
        return sorted({s.rep for s in self.shards("requests", cell)})

    def table(
        self, name: str, cell: str | None = None, rep: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows of a table (of one cell, of one repetition) with `cell` and `rep` as columns."""
        schema = _read_schema(name, columns)
        parts = []
        for shard in self.shards(name, cell, rep):
            part = pa.Table.from_batches(_shard_batches(shard, schema), schema)
            for column, value in (("cell", pa.scalar(shard.cell)), ("rep", pa.scalar(shard.rep, pa.int32()))):
                part = part.append_column(column, pa.repeat(value, part.num_rows))
            parts.append(part)
        if parts:
            return pa.concat_tables(parts)
        empty = schema.append(pa.field("cell", pa.string())).append(pa.field("rep", pa.int32()))
        return empty.empty_table()

    def batches(
        self, name: str, cell: str, rep: int, columns: Sequence[str] | None = None, batch_rows: int = 1 << 16
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one repetition batch by batch, in the order of `table`, in bounded memory."""
        schema = _read_schema(name, columns)
        for shard in self.shards(name, cell, rep):
            yield from _shard_batches(shard, schema, batch_rows)


def _read_schema(name: str, columns: Sequence[str] | None) -> pa.Schema:
    """Schema as read: asked columns only, those of few values as dictionaries."""
    if name not in TABLES:
        raise ReportError(f"no table {name!r}; tables: {', '.join(TABLES)}")
    schema = TABLES[name].arrow()
    fields: list[pa.Field[Any]] = []
    for column in schema.names if columns is None else columns:
        if column not in schema.names:
            raise ReportError(f"{name}: no column {column!r}; columns: {', '.join(schema.names)}")
        field = schema.field(column)
        if column in _CATEGORICAL:
            field = field.with_type(pa.dictionary(pa.int32(), pa.string()))
        fields.append(field.with_nullable(True))
    return pa.schema(fields)


def _shard_batches(shard: Shard, schema: pa.Schema, batch_rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Rows of one shard in `schema`; columns that an older version did not have are null."""
    if shard.parquet.exists():
        file = _open_parquet(shard)
        written = file.schema_arrow
        _check_version(shard.parquet, written)
        present = [name for name in schema.names if name in written.names]
        source: Iterator[pa.RecordBatch] = file.iter_batches(batch_size=batch_rows, columns=present)
    else:
        begun = stream_schema(shard.stream)
        if begun is None:
            return
        _check_version(shard.stream, begun)
        source = stream_batches(shard.stream)
    for batch in source:
        yield _conform(batch, schema, shard)


def _open_parquet(shard: Shard) -> pq.ParquetFile:
    categorical = [c.name for c in TABLES[shard.table].columns if c.name in _CATEGORICAL]
    try:
        try:
            return pq.ParquetFile(shard.parquet, read_dictionary=categorical, memory_map=True)
        except KeyError:  # of an older version, which lacks one of the columns
            present = set(pq.read_schema(shard.parquet).names)
            known = [name for name in categorical if name in present]
            return pq.ParquetFile(shard.parquet, read_dictionary=known, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise ReportError(f"{shard.parquet}: not a readable Parquet file ({error})") from error


def _conform(batch: pa.RecordBatch, schema: pa.Schema, shard: Shard) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(index)
        if array.type != field.type:
            try:
                array = array.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ReportError(f"{shard.folder}: column {field.name!r}: {error}") from error
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_version(path: Path, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(b"pddbench_schema")
    if version is None:
        raise ReportError(f"{path}: no pddbench_schema in the file's metadata; not written by pddbench")
    if int(version) > SCHEMA_VERSION:
        raise ReportError(
            f"{path}: schema version {int(version)} was written by a newer pddbench; this one reads up to "
            f"{SCHEMA_VERSION}"
        )
