"""Writes the native Parquet format (workloads.native_format)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.native_format import (
    GLOBAL_SCOPE,
    LISTED_SCOPES,
    METADATA_KEY,
    OWN_SESSION,
    SCHEMA,
    TRIGGERS,
    VERSION,
    Metadata,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from workloads.trace import Trace

_ROW_GROUP: Final = 1 << 20


def write(trace: Trace, path: Path) -> None:
    """Write the trace; an existing file is replaced."""
    t = trace.turns
    runs = _Runs(trace)
    session = trace.session_of
    names = trace.session_ids
    columns: dict[str, Any] = {
        "session_id": pa.DictionaryArray.from_arrays(
            pa.array(session, pa.int32()), pa.array(names, pa.string())
        ),
        "session_start_ns": pa.array(trace.session_start_ns[session]),
        "arrival_ns": _nullable(t.arrival_ns),
        "service_ns": _nullable(t.service_ns),
        "delay_ns": pa.array(t.delay_ns),
        "input_tokens": pa.array(t.input_tokens),
        "output_tokens": pa.array(t.output_tokens),
        "after": _lists(t.after_start, pa.array(t.after, pa.int32())),
        "base": _nullable(t.base),
        "shared_tokens": pa.array(t.shared_tokens),
        "trigger": _coded(t.trigger - 1, TRIGGERS[1:]),
        "agent": _coded(t.agent, trace.agents),
        "tenant": _coded(t.tenant, trace.tenants),
        "priority": pa.array(t.priority, pa.int32()),
        "parent_row": _nullable(runs.parent_row),
        "shared_blocks": pa.array(runs.shared),
        "blocks": pa.array(trace.tree.depth_of(t.node)),
        "run_scope": _lists(runs.start, pa.array(runs.scope, pa.int32())),
        "run_blocks": _lists(runs.start, pa.array(runs.blocks, pa.int64())),
        "run_first_id": _lists(runs.start, pa.array(runs.first_id, pa.uint64(), mask=runs.listed)),
        "ids": _lists(runs.ids_start, pa.array(runs.ids, pa.uint64())),
    }
    metadata = msgspec.json.encode(Metadata(VERSION, trace.header, runs.scopes))
    schema = SCHEMA.with_metadata({METADATA_KEY: metadata})
    table = pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)
    pq.write_table(table, path, compression="zstd", row_group_size=_ROW_GROUP)


class _Runs:
    """The tree as chains of runs: each node belongs to the first row that passes it."""

    def __init__(self, trace: Trace) -> None:
        tree, node = trace.tree, trace.turns.node
        rows = len(trace)
        owner = tree.first_touch(node, np.arange(rows))
        order = np.lexsort((tree.depth, owner))
        order = order[: int((owner < rows).sum())]
        owner = owner[order]
        length = (tree.depth - tree.start())[order]
        order, owner, length = order[length > 0], owner[length > 0], length[length > 0]
        at, first = tree.id_at[order], tree.first_id[order]
        scope, self.scopes = _scope_codes(trace, order, owner)
        # Neighbours of one chain and scope whose ids go on are one run.
        goes_on = np.zeros(len(order), bool)
        same = (owner[1:] == owner[:-1]) & (scope[1:] == scope[:-1])
        counts = (at[1:] < 0) & (at[:-1] < 0) & (first[1:] == first[:-1] + length[:-1].astype(np.uint64))
        goes_on[1:] = same & (counts | ((at[1:] >= 0) & (at[:-1] >= 0)))
        head = np.flatnonzero(~goes_on)
        self.scope = scope[head]
        self.blocks = np.add.reduceat(length, head) if len(head) else length
        self.first_id = first[head]
        self.listed = at[head] >= 0
        self.start = np.searchsorted(owner[head], np.arange(rows + 1))
        listed = at >= 0
        sizes = length[listed]
        offset = np.cumsum(sizes) - sizes
        take = np.repeat(at[listed] - offset, sizes) + np.arange(int(sizes.sum()))
        self.ids = tree.ids[take]
        self.ids_start = np.searchsorted(np.repeat(owner[listed], sizes), np.arange(rows + 1))
        self._link(trace, order, owner)

    def _link(self, trace: Trace, order: NDArray[np.int64], owner: NDArray[np.int64]) -> None:
        """Where each row leaves its parent: above its own chain, or at its end when it has none."""
        tree, node = trace.tree, trace.turns.node
        top = np.array(node, np.int64)
        begins = np.concatenate(([True], owner[1:] != owner[:-1])) if len(owner) else np.zeros(0, bool)
        top[owner[begins]] = tree.parent[order[begins]]
        self.shared = tree.depth_of(top)
        first = tree.first_touch(node, np.arange(len(node)))
        # A zero-length node has its parent's depth: the owner of the point is who first came that deep.
        self.parent_row = np.where(top >= 0, first[top] if tree.nodes else -1, -1)
        self.parent_row[self.shared == 0] = -1


def _scope_codes(
    trace: Trace, order: NDArray[np.int64], owner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Code of each node's scope, and the names of the listed ones."""
    tree = trace.tree
    index = {name: s for s, name in enumerate(trace.session_ids)}
    session_of_scope = np.array([index.get(name, -1) for name in tree.scopes], np.int64)
    scope = tree.scope[order]
    own = session_of_scope[scope] == trace.session_of[owner]
    used = np.unique(scope[~own & (scope > 0)])
    code_of = np.zeros(len(tree.scopes), np.int64)
    code_of[used] = LISTED_SCOPES + np.arange(len(used))
    listed = np.where(scope == 0, GLOBAL_SCOPE, code_of[scope])
    code = np.where(own, OWN_SESSION, listed)
    return code, tuple(tree.scopes[u] for u in used)


def _nullable(values: NDArray[np.signedinteger]) -> Any:
    return pa.array(values, mask=values < 0)


def _coded(codes: NDArray[np.signedinteger], names: tuple[str | None, ...]) -> Any:
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _lists(start: NDArray[np.integer], values: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(start, pa.int32()), values)
