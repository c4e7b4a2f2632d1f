"""Parquet files whose damage becomes a TraceError."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from workloads.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"PAR1"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what pyarrow raises for a missing or damaged file into a TraceError."""
    try:
        yield
    except FileNotFoundError as e:
        raise TraceError("no such file", file=path) from e
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as e:
        told = str(e).splitlines() or [type(e).__name__]
        raise TraceError(f"not a readable Parquet file: {told[0]}", file=path) from e


def file_metadata(path: Path) -> dict[bytes, bytes]:
    """Key-value metadata of a file, none where it cannot be read."""
    try:
        with reading(path):
            return dict(pq.read_metadata(path).metadata or {})
    except TraceError:
        return {}


def schema_or_none(path: Path) -> pa.Schema | None:
    """The schema, None where the file has none that can be read."""
    try:
        with reading(path):
            return pq.read_schema(path)
    except TraceError:
        return None
