"""Native traces: one Parquet file, a row a turn, the prefix tree as links between rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.builder import MAX_TOKENS
from workloads.chains import tree_of
from workloads.errors import TraceError
from workloads.native_format import METADATA_KEY, SCHEMA, TRIGGERS, VERSION, Metadata
from workloads.readers.native_chains import ChainColumns
from workloads.readers.parquet import MAGIC, file_metadata, reading
from workloads.trace import UNKNOWN, Tail, Trace, Turns

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from workloads.readers.options import ReadOptions

NAME: Final = "native"


def sniff(path: Path, head: bytes) -> bool:
    """Whether this is a Parquet file that says it is a trace of ours."""
    return head.startswith(MAGIC) and METADATA_KEY in file_metadata(path)


def read(path: Path, _options: ReadOptions) -> Trace:
    """One Parquet file."""
    with reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        return NativeColumns(path, file).trace()


class NativeColumns:
    """Columns of the file, read one at a time and checked, and the tree rebuilt from the rows' links."""

    def __init__(self, path: Path, file: pq.ParquetFile) -> None:
        self.path = path
        self._file = file
        self.metadata = self._metadata(file.metadata.metadata or {})
        found = file.schema_arrow
        for field in SCHEMA:
            places = found.get_all_field_indices(field.name)
            if len(places) != 1:
                told = "this column is missing" if not places else "there are several columns of this name"
                raise TraceError(told, file=path, field=field.name)
            if not _alike(found.field(places[0]).type, field.type):
                raise TraceError(
                    f"must be of type {field.type}",
                    file=path,
                    field=field.name,
                    value=str(found.field(places[0]).type),
                )
        self.rows = file.metadata.num_rows
        if not self.rows:
            raise TraceError("holds no request at all", file=path)

    def column(self, name: str) -> pa.ChunkedArray[Any]:
        """A column as it stands in the file. Keep it no longer than needed: a trace may fill the memory."""
        read: pa.ChunkedArray[Any] = self._file.read(columns=[name]).column(name)
        if read.null_count and not SCHEMA.field(name).nullable:
            raise TraceError("must not hold nulls", file=self.path, field=name)
        return read

    def trace(self) -> Trace:
        header = self.metadata.header
        session_ids, turn_start = self._sessions()
        turns = np.diff(turn_start)
        start_ns = self.numbers("session_start_ns", least=0)
        within = np.arange(self.rows) - np.repeat(turn_start[:-1], turns)
        after_start, after = self._after(within)
        blocks = self.numbers("blocks", least=0)
        inputs = self.numbers("input_tokens", least=1, most=MAX_TOKENS - 1)
        if header.prefix_known:
            whole = inputs // header.block_size
            right = whole if header.tail is Tail.WHOLE else -(-inputs // header.block_size)
            self.check(blocks == right, "blocks", "does not fit the input tokens", blocks)
        chains = ChainColumns(self, blocks).chains(turn_start)
        scopes = ("", *session_ids, *self.metadata.scopes)
        tree, node = tree_of(chains, header.block_size, scopes)
        agents, agent = self._names("agent")
        tenants, tenant = self._names("tenant")
        columns = Turns(
            arrival_ns=self.numbers("arrival_ns", least=0),
            service_ns=self.numbers("service_ns", least=0),
            delay_ns=self.numbers("delay_ns", least=0),
            input_tokens=inputs,
            output_tokens=self.numbers("output_tokens", least=0, most=MAX_TOKENS - 1),
            node=node,
            base=self.numbers("base", least=0).astype(np.int32),
            after_start=after_start,
            after=after.astype(np.int32),
            shared_tokens=self.numbers("shared_tokens", least=0),
            trigger=self._triggers(),
            agent=agent,
            tenant=tenant,
            priority=self.numbers("priority", least=None).astype(np.int32),
        )
        self.check(columns.base < within, "base", "must name an earlier turn of the session", columns.base)
        owner = np.repeat(within, np.diff(after_start))
        if ((after < 0) | (after >= owner)).any():
            bad = int(np.flatnonzero((after < 0) | (after >= owner))[0])
            raise TraceError(
                "must name earlier turns of the session", file=self.path, field="after", value=int(after[bad])
            )
        return Trace(
            header=header,
            session_ids=session_ids,
            session_start_ns=start_ns[turn_start[:-1]],
            turn_start=turn_start,
            turns=columns,
            tree=tree,
            agents=agents,
            tenants=tenants,
        )

    def _metadata(self, told: dict[bytes, bytes]) -> Metadata:
        raw = told.get(METADATA_KEY)
        if raw is None:
            raise TraceError("this Parquet file is not a native trace; name its format", file=self.path)
        try:
            metadata = msgspec.json.decode(raw, type=Metadata)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise TraceError(f"its trace metadata is damaged: {e}", file=self.path) from e
        if metadata.version != VERSION:
            raise TraceError(
                f"is of another version of the format; this one reads {VERSION}",
                file=self.path,
                value=metadata.version,
            )
        if not 0 < metadata.header.block_size <= 1 << 20:
            raise TraceError(
                "must be 1..1048576", file=self.path, field="block_size", value=metadata.header.block_size
            )
        return metadata

    def _sessions(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        names, code = self._names("session_id")
        begins = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
        order = code[begins]
        if len(np.unique(order)) != len(order):
            raise TraceError("rows of a session must stand together", file=self.path, field="session_id")
        return tuple(names[c] for c in order.tolist()), np.append(begins, self.rows)

    def numbers(self, name: str, *, least: int | None, most: int | None = None) -> NDArray[np.int64]:
        """A column of numbers; null becomes -1."""
        column: Any = self.column(name)
        told = None
        if column.null_count:
            told = column.is_valid().to_numpy()
            column = column.fill_null(0)
        values = np.asarray(column.to_numpy(), np.int64)
        if least is not None:
            self.check(values >= least, name, f"must be {least} or more", values)
        if most is not None:
            self.check(values <= most, name, f"must be {most} or less", values)
        return values if told is None else np.where(told, values, UNKNOWN)

    def lists(self, name: str) -> tuple[NDArray[np.bool_], NDArray[np.int64], Any]:
        """Which rows hold a list, offsets of theirs alone, and the values."""
        column: Any = self.column(name).combine_chunks()
        valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
        sizes = np.diff(column.offsets.to_numpy())[valid]
        return valid, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), column.flatten()

    def integers(self, name: str) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """The same, with whole numbers and no null among them."""
        valid, offsets, values = self.lists(name)
        if values.null_count:
            raise TraceError("must not hold nulls", file=self.path, field=name)
        return valid, offsets, values.to_numpy(zero_copy_only=False).astype(np.int64)

    def _after(self, within: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What each turn waits for: null stands for the turn before."""
        odd, offsets, listed = self.integers("after")
        counts = (within > 0).astype(np.int64)
        counts[odd] = np.diff(offsets)
        start = np.concatenate(([0], np.cumsum(counts)))
        after = np.empty(int(start[-1]), np.int64)
        told = np.repeat(odd, counts)
        after[told] = listed
        after[~told] = within[~odd & (within > 0)] - 1
        return start, after

    def _names(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        column: Any = self.column(name).unify_dictionaries().combine_chunks()
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        codes = column.indices.fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int32)
        return tuple(column.dictionary.to_pylist()), codes

    def _triggers(self) -> NDArray[np.int8]:
        names, code = self._names("trigger")
        known = {name: number for number, name in enumerate(TRIGGERS)}
        for name in names:
            if name not in known:
                raise TraceError(
                    "must be 'user', 'tool' or null", file=self.path, field="trigger", value=name
                )
        numbers = np.array([known[name] for name in names] + [0], np.int8)
        return numbers[code]

    def check(self, good: NDArray[np.bool_], name: str, message: str, values: NDArray[np.integer]) -> None:
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise TraceError(message, file=self.path, line=row, field=name, value=int(values[row]))


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column's type is the wanted one, a dictionary of strings counting as strings."""
    if pa.types.is_dictionary(wanted):
        plain = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))
    return bool(found.equals(wanted))
