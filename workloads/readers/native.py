"""Reads the native Parquet format (workloads.native_format)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.builder import MAX_TOKENS
from workloads.errors import TraceError
from workloads.native_format import (
    LISTED_SCOPES,
    METADATA_KEY,
    OWN_SESSION,
    SCHEMA,
    TRIGGERS,
    VERSION,
    Metadata,
)
from workloads.prefix_tree import NO_NODE, PrefixTree
from workloads.trace import UNKNOWN, Tail, Trace, Turns

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from workloads.readers.options import ReadOptions

NAME: Final = "native"
_MAGIC: Final = b"PAR1"


def sniff(path: Path, head: bytes) -> bool:
    """Whether this is a Parquet file that says it is a trace of ours."""
    if not head.startswith(_MAGIC):
        return False
    try:
        return METADATA_KEY in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def read(path: Path, _options: ReadOptions) -> Trace:
    """One Parquet file."""
    try:
        table = pq.read_table(path, partitioning=None)
    except FileNotFoundError as e:
        raise TraceError("no such file", file=path) from e
    except (pa.ArrowException, OSError) as e:
        raise TraceError(f"not a readable Parquet file: {str(e).splitlines()[0]}", file=path) from e
    return _Reader(path, table).trace()


class _Reader:
    """Columns of the table, checked, and the tree rebuilt from the rows' links."""

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path = path
        self.metadata = self._metadata(table)
        for field in SCHEMA:
            if field.name not in table.column_names:
                raise TraceError("this column is missing", file=path, field=field.name)
            if not _alike(table.schema.field(field.name).type, field.type):
                raise TraceError(
                    f"must be of type {field.type}",
                    file=path,
                    field=field.name,
                    value=str(table.schema.field(field.name).type),
                )
            if not field.nullable and table.column(field.name).null_count:
                raise TraceError("must not hold nulls", file=path, field=field.name)
        self.table = table.combine_chunks()
        self.rows = len(table)
        if not self.rows:
            raise TraceError("holds no request at all", file=path)

    def trace(self) -> Trace:
        header = self.metadata.header
        session_ids, turn_start = self._sessions()
        turns = np.diff(turn_start)
        start_ns = self.numbers("session_start_ns", least=0)
        after_start, after = self._list("after")
        blocks = self.numbers("blocks", least=0)
        inputs = self.numbers("input_tokens", least=1, most=MAX_TOKENS - 1)
        if header.prefix_known:
            whole = inputs // header.block_size
            right = whole if header.tail is Tail.WHOLE else -(-inputs // header.block_size)
            self.check(blocks == right, "blocks", "does not fit the input tokens", blocks)
        tree, node = _TreeLoader(self, session_ids, turn_start, blocks).load()
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
        within = np.arange(self.rows) - np.repeat(turn_start[:-1], turns)
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

    def _metadata(self, table: pa.Table) -> Metadata:
        raw = (table.schema.metadata or {}).get(METADATA_KEY)
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
        column: Any = self.table.column(name)
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

    def list_of(self, name: str) -> tuple[NDArray[np.int64], Any]:
        """Offsets and values of a list column."""
        column: Any = self.table.column(name).combine_chunks()
        if column.null_count:
            raise TraceError("must not hold nulls", file=self.path, field=name)
        offsets = column.offsets.to_numpy().astype(np.int64)
        return offsets - offsets[0], column.flatten()

    def _list(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        offsets, values = self.list_of(name)
        if values.null_count:
            raise TraceError("must not hold nulls", file=self.path, field=name)
        return offsets, values.to_numpy(zero_copy_only=False)

    def _names(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        column: Any = self.table.column(name).combine_chunks()
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


class _TreeLoader:
    """Cuts every row's own run of blocks where other rows leave it, and links the pieces."""

    def __init__(
        self,
        reader: _Reader,
        session_ids: tuple[str, ...],
        turn_start: NDArray[np.int64],
        blocks: NDArray[np.int64],
    ) -> None:
        self.reader = reader
        self.session_ids = session_ids
        self.turn_start = turn_start
        self.blocks = blocks
        self.rows = len(blocks)
        self.stride = int(blocks.max()) + 1

    def load(self) -> tuple[PrefixTree, NDArray[np.int32]]:
        reader, rows = self.reader, self.rows
        parent_row = reader.numbers("parent_row", least=0)
        shared = reader.numbers("shared_blocks", least=0)
        self._check_links(parent_row, shared)
        run_start, scope, length, first, listed, ids, id_at = self._runs(shared)
        run_row = np.repeat(np.arange(rows), np.diff(run_start))
        ends = np.cumsum(length) - np.repeat(_before(length, run_start), np.diff(run_start)) + shared[run_row]
        run_key = run_row * self.stride + ends  # ascending: rows in order, ends within a row too
        leaves = parent_row * self.stride + shared
        has_parent = parent_row >= 0
        inner = np.flatnonzero(has_parent & (shared < self.blocks[np.where(has_parent, parent_row, 0)]))
        cuts = np.setdiff1d(leaves[inner], run_key)
        key = np.sort(np.concatenate((run_key, cuts)), kind="stable") if len(cuts) else run_key
        row = key // self.stride if len(cuts) else run_row
        run = np.searchsorted(run_key, key) if len(cuts) else np.arange(len(key))
        depth = key - row * self.stride
        begins = np.concatenate(([True], row[1:] != row[:-1])) if len(row) else np.zeros(0, bool)
        last = np.full(rows, NO_NODE, np.int64)  # the node at each row's end, if it has blocks of its own
        last[row[np.append(begins[1:], True)] if len(row) else row] = (
            np.flatnonzero(np.append(begins[1:], True)) if len(row) else row
        )
        at_leaf = self._node_at(parent_row, shared, last, key, leaves)
        parent = np.arange(len(key)) - 1
        parent[begins] = at_leaf[row[begins]]
        above = np.where(begins, shared[row], np.concatenate(([0], depth[:-1])) if len(depth) else depth)
        into = above - (ends[run] - length[run])  # blocks into the run at which the piece begins
        tree = PrefixTree(
            block_size=reader.metadata.header.block_size,
            parent=parent.astype(np.int32),
            depth=depth,
            scope=scope[run],
            first_id=np.where(listed[run], 0, first[run] + into.astype(np.uint64)),
            id_at=np.where(listed[run], id_at[run] + into, -1),
            ids=ids,
            scopes=("", *self.session_ids, *reader.metadata.scopes),
        )
        if len(ids):
            first_listed = tree.id_at >= 0
            tree.first_id[first_listed] = ids[tree.id_at[first_listed]]
        node = np.where(self.blocks > shared, last, at_leaf)
        return tree, node.astype(np.int32)

    def _check_links(self, parent_row: NDArray[np.int64], shared: NDArray[np.int64]) -> None:
        has = parent_row >= 0
        check = self.reader.check
        check(parent_row < np.arange(self.rows), "parent_row", "must name an earlier row", parent_row)
        check(shared <= self.blocks, "shared_blocks", "exceeds the row's own blocks", shared)
        check(has | (shared == 0), "shared_blocks", "needs a parent_row", shared)
        safe = np.where(has, parent_row, 0)
        reached = ~has | ((shared > shared[safe]) & (shared <= self.blocks[safe]))
        check(
            reached,
            "shared_blocks",
            "must lie on the blocks that the parent row is the first to send",
            shared,
        )

    def _runs(self, shared: NDArray[np.int64]) -> tuple[Any, ...]:
        """Runs of own blocks: offsets by row, scope, length, first id, listed or not, ids, place in ids."""
        reader = self.reader
        run_start, code = reader.list_of("run_scope")
        for name in ("run_blocks", "run_first_id"):
            same, _ = reader.list_of(name)
            if not np.array_equal(same, run_start):
                raise TraceError("must be as long as run_scope in every row", file=reader.path, field=name)
        code = code.to_numpy(zero_copy_only=False).astype(np.int64)
        length = reader.list_of("run_blocks")[1].to_numpy(zero_copy_only=False).astype(np.int64)
        first_column = reader.list_of("run_first_id")[1]
        listed = first_column.is_null().to_numpy(zero_copy_only=False)
        first = first_column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        ids_start, id_values = reader.list_of("ids")
        ids = id_values.to_numpy(zero_copy_only=False).astype(np.uint64)
        row = np.repeat(np.arange(self.rows), np.diff(run_start))
        own = np.bincount(row, weights=length, minlength=self.rows).astype(np.int64)
        reader.check(own == self.blocks - shared, "run_blocks", "must add up to blocks - shared_blocks", own)
        if (length <= 0).any():
            raise TraceError("must be above 0", file=reader.path, field="run_blocks", value=int(length.min()))
        told = np.bincount(row, weights=length * listed, minlength=self.rows).astype(np.int64)
        reader.check(
            told == np.diff(ids_start),
            "ids",
            "must list the ids of the runs without first_id",
            told,
        )
        offset = np.cumsum(length * listed) - length * listed
        if ((code < 0) | (code >= LISTED_SCOPES + len(reader.metadata.scopes))).any():
            raise TraceError(
                "names no scope of the file", file=reader.path, field="run_scope", value=int(code.max())
            )
        session = np.repeat(np.arange(len(self.session_ids)), np.diff(self.turn_start))
        sessions = len(self.session_ids)
        scope = np.where(
            code == OWN_SESSION, 1 + session[row], np.where(code >= LISTED_SCOPES, code + sessions - 1, 0)
        )
        return run_start, scope.astype(np.int32), length, first, listed, ids, offset

    def _node_at(
        self,
        parent_row: NDArray[np.int64],
        shared: NDArray[np.int64],
        last: NDArray[np.int64],
        key: NDArray[np.int64],
        leaves: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """The node that ends where each row leaves its parent; -1 without one."""
        has = parent_row >= 0
        safe = np.where(has, parent_row, 0)
        at_end = has & (shared == self.blocks[safe])
        out = np.where(at_end, last[safe], NO_NODE)
        inner = np.flatnonzero(has & ~at_end)
        out[inner] = np.searchsorted(key, leaves[inner])
        return out


def _before(length: NDArray[np.int64], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of the lengths before each row's first run."""
    total = np.concatenate(([0], np.cumsum(length)))
    return total[start[:-1]]


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column's type is the wanted one, a dictionary of strings counting as strings."""
    if pa.types.is_dictionary(wanted):
        plain = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))
    return bool(found.equals(wanted))
