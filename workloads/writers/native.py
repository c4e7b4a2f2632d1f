"""Writes the native Parquet format (workloads.native_format)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.chains import Chains, chains_of
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


def losses(_trace: Trace) -> list[str]:
    """Nothing: the format holds all that the model does."""
    return []


def write(trace: Trace, path: Path) -> None:
    """Write the trace; an existing file is replaced."""
    chains = chains_of(trace.tree, trace.turns.node)
    code, listed = _scope_codes(trace, chains)
    metadata = msgspec.json.encode(Metadata(VERSION, trace.header, listed))
    schema = SCHEMA.with_metadata({METADATA_KEY: metadata})
    columns = _turn_columns(trace) | _chain_columns(chains, code)
    table = pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)
    pq.write_table(table, path, compression="zstd", row_group_size=_ROW_GROUP)


def _turn_columns(trace: Trace) -> dict[str, Any]:
    t, session = trace.turns, trace.session_of
    return {
        "session_id": pa.DictionaryArray.from_arrays(
            pa.array(session, pa.int32()), pa.array(trace.session_ids, pa.string())
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
    }


def _chain_columns(chains: Chains, code: NDArray[np.int32]) -> dict[str, Any]:
    listed = chains.run_at >= 0
    sizes = np.where(listed, chains.run_blocks, 0)
    offset = np.cumsum(sizes) - sizes
    ids = chains.ids[np.repeat(chains.run_at - offset, sizes) + np.arange(int(sizes.sum()))]
    ids_start = np.concatenate(([0], np.cumsum(sizes)))[chains.run_start]
    return {
        "parent_row": _nullable(chains.parent_row),
        "shared_blocks": pa.array(chains.shared),
        "blocks": pa.array(chains.blocks),
        "run_scope": _lists(chains.run_start, pa.array(code, pa.int32())),
        "run_blocks": _lists(chains.run_start, pa.array(chains.run_blocks, pa.int64())),
        "run_first_id": _lists(chains.run_start, pa.array(chains.run_first, pa.uint64(), mask=listed)),
        "ids": _lists(ids_start, pa.array(ids, pa.uint64())),
    }


def _scope_codes(trace: Trace, chains: Chains) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Code of each run's scope in the file, and the names of those that are listed."""
    index = {name: s for s, name in enumerate(trace.session_ids)}
    session_of_scope = np.array([index.get(name, -1) for name in trace.tree.scopes], np.int64)
    own = session_of_scope[chains.run_scope] == trace.session_of[chains.run_row]
    used = np.unique(chains.run_scope[~own])
    used = used[used > 0]
    code_of = np.full(len(trace.tree.scopes), GLOBAL_SCOPE, np.int32)
    code_of[used] = LISTED_SCOPES + np.arange(len(used))
    code = np.where(own, OWN_SESSION, code_of[chains.run_scope]).astype(np.int32)
    return code, tuple(trace.tree.scopes[u] for u in used)


def _nullable(values: NDArray[np.signedinteger]) -> Any:
    return pa.array(values, mask=values < 0)


def _coded(codes: NDArray[np.signedinteger], names: tuple[str | None, ...]) -> Any:
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _lists(start: NDArray[np.integer], values: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(start, pa.int32()), values)
