"""Baseten production traces: Parquet of instant (UNIX ms), lengths, block hashes and the session, if told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.builder import Place, TraceBuilder
from workloads.errors import TraceError
from workloads.readers.blocks import PROBED_ROWS, infer
from workloads.readers.parquet import MAGIC, reading, schema_or_none
from workloads.readers.values import milliseconds
from workloads.source import digest, files
from workloads.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from workloads.readers.options import ReadOptions

NAME: Final = "baseten"
_COLUMNS: Final = ("timestamp_start_unix_ms", "input_tokens", "output_tokens", "total_hashes")
_SESSION: Final = "provided_session_id"
_BLOCK_SIZE: Final = "block_size"
_USUAL_BLOCK: Final = 16
_BATCH: Final = 4096


def sniff(path: Path, head: bytes) -> bool:
    """Whether this is a Parquet file with Baseten's columns."""
    schema = schema_or_none(path) if head.startswith(MAGIC) else None
    return schema is not None and set(_COLUMNS) <= set(schema.names)


def read(path: Path, options: ReadOptions) -> Trace:
    """One Parquet file, or a directory of them read as one; rows in order of time."""
    sources = files(path, (".parquet",))
    told = options.block_size or _told_block_size(sources[0])
    probe = [(tokens, len(ids)) for _, tokens, _, ids, _, _ in _rows(sources[0], PROBED_ROWS)][:PROBED_ROWS]
    block_size, tail = infer(probe, usual=_USUAL_BLOCK, told=told)
    reader = _Reader(TraceBuilder(block_size=block_size, tail=tail))
    for source in sources:
        for row in _rows(source, _BATCH):
            reader.add(*row)
    return reader.builder.build(
        name=path.name,
        source_format=NAME,
        digest=digest(sources),
        sessions_known=bool(reader.sessions),
        warnings=["waits are start-to-start gaps and contain the recorded service time"]
        if reader.sessions
        else (),
    )


_RowTuple = tuple[float, int, int, "NDArray[np.uint64]", str | None, Place]


def _rows(source: Path, batch: int) -> Iterator[_RowTuple]:
    """Instant (ms), input, output, block ids, session and place of each row."""
    with reading(source), pq.ParquetFile(source) as file:
        missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise TraceError(f"lacks the columns {', '.join(missing)}", file=source)
        names = [*_COLUMNS, *((_SESSION,) if _SESSION in file.schema_arrow.names else ())]
        number = 0
        for part in file.iter_batches(batch_size=batch, columns=names):
            yield from _batch_rows(source, part, number)
            number += len(part)


def _batch_rows(source: Path, part: Any, number: int) -> Iterator[_RowTuple]:
    columns = {name: part.column(name) for name in part.schema.names}
    for name in _COLUMNS:
        if columns[name].null_count:
            raise TraceError("must not hold nulls", file=source, field=name)
    at, inputs, outputs = (_numbers(source, columns[name], name) for name in _COLUMNS[:3])
    hashes: Any = columns[_COLUMNS[3]]
    if not (pa.types.is_list(hashes.type) or pa.types.is_large_list(hashes.type)):
        raise TraceError(
            "must be lists of block hashes", file=source, field=_COLUMNS[3], value=str(hashes.type)
        )
    offsets = hashes.offsets.to_numpy() - hashes.offsets[0].as_py()
    ids = _unsigned(source, hashes.flatten())
    sessions = columns[_SESSION].to_pylist() if _SESSION in columns else [None] * len(part)
    for i, session in enumerate(sessions):
        place = Place(str(source), number + i + 1)
        run = ids[offsets[i] : offsets[i + 1]]
        yield (
            float(at[i]),
            int(inputs[i]),
            int(outputs[i]),
            run,
            None if session is None else str(session),
            place,
        )


def _numbers(source: Path, column: Any, name: str) -> Any:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise TraceError("must be numbers", file=source, field=name, value=str(column.type))
    return column.to_numpy(zero_copy_only=False)


def _unsigned(source: Path, values: Any) -> NDArray[np.uint64]:
    """Block hashes as unsigned 64-bit numbers, from numbers or from hexadecimal text."""
    name = _COLUMNS[3]
    if values.null_count:
        raise TraceError("must not hold nulls", file=source, field=name)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        try:
            return np.array([int(text, 16) for text in values.to_pylist()], np.uint64)
        except (ValueError, OverflowError) as e:
            raise TraceError(
                f"text hashes must be hexadecimal and fit 64 bits: {e}", file=source, field=name
            ) from e
    if not pa.types.is_integer(values.type):
        raise TraceError(
            "must be whole numbers or hexadecimal text", file=source, field=name, value=str(values.type)
        )
    numbers = values.to_numpy(zero_copy_only=False)
    if len(numbers) and numbers.min() < 0:
        raise TraceError(
            "block hashes must be non-negative; store 64-bit hashes unsigned",
            file=source,
            field=name,
            value=int(numbers.min()),
        )
    return np.asarray(numbers, np.uint64)


def _told_block_size(source: Path) -> int | None:
    """The one value of the block_size column, if there is one."""
    with reading(source):
        if _BLOCK_SIZE not in pq.read_schema(source).names:
            return None
        values = set(pq.read_table(source, columns=[_BLOCK_SIZE]).column(0).to_pylist())
    if len(values) != 1:
        raise TraceError(
            "must be one value throughout", file=source, field=_BLOCK_SIZE, value=sorted(map(str, values))
        )
    (value,) = values
    if not isinstance(value, int) or not 0 < value <= 1 << 20:
        raise TraceError("must be 1..1048576", file=source, field=_BLOCK_SIZE, value=value)
    return value


class _Reader:
    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.sessions: dict[str, int] = {}
        self.nodes: dict[int, list[int]] = {}
        self.last_ns: dict[int, int] = {}
        self.origin: float | None = None
        self.previous = 0.0

    def add(
        self, at_ms: float, inputs: int, outputs: int, ids: NDArray[np.uint64], name: str | None, place: Place
    ) -> None:
        self.origin = at_ms if self.origin is None else self.origin
        if not at_ms >= max(self.previous, self.origin):
            raise TraceError(
                "time runs backwards", file=place.file, line=place.line, field=_COLUMNS[0], value=at_ms
            )
        self.previous = at_ms
        at_ns = milliseconds(at_ms - self.origin, place.file, _COLUMNS[0], place.line)
        session = None if name is None else self.sessions.get(name)
        if session is None:
            session = self.builder.open_session(name or f"r{len(self.builder)}", at_ns, place)
            if name is not None:
                self.sessions[name] = session
        turn = self.builder.turns_in(session)
        node = self.builder.tree.insert(0, ids, len(self.builder))
        self.builder.add_turn(
            session,
            place,
            input_tokens=inputs,
            output_tokens=outputs,
            node=node,
            after=[turn - 1] if turn else [],
            base=self.builder.tree.most_shared(self.nodes[session], node) if turn else None,
            delay_ns=at_ns - self.last_ns[session] if turn else 0,
            arrival_ns=at_ns,
        )
        if name is not None:
            self.nodes.setdefault(session, []).append(node)
            self.last_ns[session] = at_ns
