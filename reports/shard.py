"""Names of shard files, and the life of a shard.

A shard is what one process wrote into one table for one repetition of one cell. While it is being
written it is an Arrow IPC stream, `_<shard>.arrows`: every flush appends one complete record batch, so
that a process killed at any moment loses only rows it had not flushed, and at most the last batch is
torn. The leading underscore hides it from everything that reads `*.parquet` or a folder as a dataset.
Finishing turns the stream into `<shard>.parquet` under a temporary name, renames it, and removes the
stream. A stream whose Parquet file exists is therefore a left-over and never read: no row counts twice.

The writer holds an exclusive `flock` on its stream, which the kernel drops when the process dies: that
is how a live shard is told from an abandoned one.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reports.errors import RecordingError, ReportError

STREAM_SUFFIX: Final = ".arrows"
FINISHED_SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_ROW_GROUP_BYTES: Final = 32 << 20
_ROW_GROUP_ROWS: Final = 1 << 17
# Offsets and instants grow slowly from entry to entry; deltas pack them to a third of plain zstd.
_DELTA_COLUMNS: Final = ("token_offsets_ns.list.element",)


@dataclass(frozen=True, slots=True)
class Shard:
    """Where one shard of one table lies, finished or not."""

    run_dir: Path
    table: str
    cell: str
    rep: int
    name: str

    def __post_init__(self) -> None:
        for what, text in (("cell", self.cell), ("shard", self.name)):
            if not _NAME.fullmatch(text):
                raise ReportError(f"{what} {text!r}: use letters, digits and . _ + - only (it names a file)")
        if self.rep < 0:
            raise ReportError(f"rep {self.rep}: repetitions count from 0")

    @property
    def folder(self) -> Path:
        return self.run_dir / self.table / f"cell={self.cell}" / f"rep={self.rep}"

    @property
    def stream(self) -> Path:
        return self.folder / f"_{self.name}{STREAM_SUFFIX}"

    @property
    def parquet(self) -> Path:
        return self.folder / f"{self.name}{FINISHED_SUFFIX}"


def find_shards(run_dir: Path, table: str) -> list[Shard]:
    """Every shard of a table, each once, in the order of cell, rep and name."""
    found: set[tuple[str, int, str]] = set()
    for path in (run_dir / table).glob("cell=*/rep=*/*"):
        if path.suffix == FINISHED_SUFFIX and not path.name.startswith(("_", ".")):
            name = path.name.removesuffix(FINISHED_SUFFIX)
        elif path.suffix == STREAM_SUFFIX and path.name.startswith("_"):
            name = path.name[1:].removesuffix(STREAM_SUFFIX)
        else:
            continue
        rep = path.parent.name.removeprefix("rep=")
        if not rep.isdigit():
            raise ReportError(f"{path.parent}: 'rep={rep}' is no repetition; expected rep=0, rep=1, …")
        found.add((path.parent.parent.name.removeprefix("cell="), int(rep), name))
    return [Shard(run_dir, table, cell, rep, name) for cell, rep, name in sorted(found)]


def stream_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Complete batches of an unfinished shard, mapped rather than copied; a torn last one is left out."""
    reader = _open_stream(path)
    while reader is not None:
        try:
            batch = reader.read_next_batch()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return
        yield batch


def stream_schema(path: Path) -> pa.Schema | None:
    """Schema of an unfinished shard, None when it was killed before writing it."""
    reader = _open_stream(path)
    return None if reader is None else reader.schema


def _open_stream(path: Path) -> pa.RecordBatchStreamReader | None:
    if not path.stat().st_size:
        return None  # killed before the schema was whole: nothing was flushed
    try:
        return pa.ipc.open_stream(pa.memory_map(str(path)))
    except (pa.ArrowInvalid, OSError):
        return None


def is_being_written(shard: Shard) -> bool:
    """Whether a live process holds the shard's stream."""
    try:
        with shard.stream.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def finish_shard(shard: Shard) -> Path | None:
    """Turn a stream nobody writes into Parquet. None when it held no schema (then it is only removed).

    Memory is bounded by one row group. Raises RecordingError when the disk is full: the stream stays.
    """
    temporary = shard.folder / f"_{shard.name}{FINISHED_SUFFIX}.tmp"
    schema = stream_schema(shard.stream)
    if schema is None:
        shard.stream.unlink()
        return None
    try:
        with pq.ParquetWriter(temporary, schema, **parquet_options(schema)) as writer:
            for group in _row_groups(stream_batches(shard.stream)):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordingError(
            f"{shard.parquet}: cannot write ({error.strerror or error}); the rows stay readable in "
            f"{shard.stream.name}"
        ) from error
    temporary.replace(shard.parquet)
    shard.stream.unlink()
    return shard.parquet


def finish_abandoned(run_dir: Path) -> list[Path]:
    """Turn every stream in a run that no live process writes into Parquet; returns the finished files.

    Left-overs of an interrupted finish (stream beside its Parquet file, temporary files) are removed.
    """
    finished: list[Path] = []
    for stream in sorted(run_dir.glob(f"*/cell=*/rep=*/_*{STREAM_SUFFIX}")):
        shard = Shard(
            run_dir,
            stream.parents[2].name,
            stream.parents[1].name.removeprefix("cell="),
            int(stream.parent.name.removeprefix("rep=")),
            stream.name[1:].removesuffix(STREAM_SUFFIX),
        )
        if is_being_written(shard):
            continue
        if shard.parquet.exists():
            stream.unlink()
        elif (path := finish_shard(shard)) is not None:
            finished.append(path)
        (shard.folder / f"_{shard.name}{FINISHED_SUFFIX}.tmp").unlink(missing_ok=True)
    return finished


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How shards are packed: what pyarrow.parquet.ParquetWriter is told."""
    delta = {name: "DELTA_BINARY_PACKED" for name in _DELTA_COLUMNS if name.partition(".")[0] in schema.names}
    text = [field.name for field in schema if pa.types.is_string(field.type)]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "column_encoding": delta or None,
        "use_dictionary": text,
        "version": "2.6",
    }


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    rows = 0
    size = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ROW_GROUP_ROWS or size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending)
