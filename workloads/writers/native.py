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
from workloads.writers.head_links import HeadLinks
from workloads.writers.structure import waits_oddly

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from workloads.trace import Header, Trace

_ROW_GROUP: Final = 1 << 20


def losses(_trace: Trace) -> list[str]:
    """Nothing: the format holds all that the model does."""
    return []


def write(trace: Trace, path: Path) -> None:
    """Write the trace; an existing file is replaced."""
    write_parts([trace], path)


def write_parts(parts: Iterable[Trace], path: Path) -> int:
    """Write traces that follow on one another as one, part by part; the number of requests.

    A scope that is not one session's, such as a shared head, is one scope throughout the file.
    """
    writer = _Writer(path)
    try:
        for part in parts:
            writer.append(part)
    finally:
        writer.close()
    return writer.rows


class _Writer:
    """One file, a row group or more a part."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path = path
        self._file: pq.ParquetWriter | None = None
        self._header: Header | None = None
        self._scopes: dict[str, int] = {}
        self._links = HeadLinks()

    def append(self, part: Trace) -> None:
        if self._file is None:
            self._file = pq.ParquetWriter(self._path, SCHEMA, compression="zstd", write_page_checksum=True)
            self._header = part.header
        chains = chains_of(part.tree, part.turns.node)
        code = self._codes(part, chains)
        chains, code = self._links.linked(chains, code, self.rows)
        columns = _turn_columns(part) | _chain_columns(chains, code)
        table = pa.Table.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)
        self._file.write_table(table, row_group_size=_ROW_GROUP)
        self.rows += len(part)

    def close(self) -> None:
        if self._file is None or self._header is None:
            return
        metadata = Metadata(VERSION, self._header, tuple(self._scopes))
        self._file.add_key_value_metadata({METADATA_KEY.decode(): msgspec.json.encode(metadata).decode()})
        self._file.close()

    def _codes(self, trace: Trace, chains: Chains) -> NDArray[np.int32]:
        """Code of each run's scope in the file."""
        index = {name: s for s, name in enumerate(trace.session_ids)}
        session_of_scope = np.array([index.get(name, -1) for name in trace.tree.scopes], np.int64)
        own = session_of_scope[chains.run_scope] == trace.session_of[chains.run_row]
        code_of = np.full(len(trace.tree.scopes), GLOBAL_SCOPE, np.int32)
        for scope in np.unique(chains.run_scope[~own]).tolist():
            name = trace.tree.scopes[scope]
            if name:
                code_of[scope] = LISTED_SCOPES + self._scopes.setdefault(name, len(self._scopes))
        return np.where(own, OWN_SESSION, code_of[chains.run_scope]).astype(np.int32)


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
        "after": _after(trace),
        "base": _nullable(t.base),
        "shared_tokens": pa.array(t.shared_tokens),
        "trigger": _coded(t.trigger - 1, TRIGGERS[1:]),
        "agent": _coded(t.agent, trace.agents),
        "tenant": _coded(t.tenant, trace.tenants),
        "priority": pa.array(t.priority, pa.int32()),
    }


def _chain_columns(chains: Chains, code: NDArray[np.int32]) -> dict[str, Any]:
    counts = np.diff(chains.run_start)
    first_run = np.minimum(chains.run_start[:-1], max(len(code) - 1, 0))
    odd = counts > 1
    if len(code):
        odd |= (counts == 1) & ((code[first_run] != OWN_SESSION) | (chains.run_at[first_run] >= 0))
    kept = np.repeat(odd, counts)
    listed = chains.run_at[kept] >= 0
    sizes = np.where(listed, chains.run_blocks[kept], 0)
    offset = np.cumsum(sizes) - sizes
    ids = chains.ids[np.repeat(chains.run_at[kept] - offset, sizes) + np.arange(int(sizes.sum()))]
    start = np.concatenate(([0], np.cumsum(np.where(odd, counts, 0))))
    ids_start = np.concatenate(([0], np.cumsum(sizes)))[start]
    one = (counts == 1) & ~odd
    first_id = np.where(one, chains.run_first[first_run] if len(code) else 0, 0).astype(np.uint64)
    return {
        "parent_row": _nullable(chains.parent_row),
        "shared_blocks": pa.array(chains.shared),
        "blocks": pa.array(chains.blocks),
        "first_id": pa.array(first_id, pa.uint64(), mask=~one),
        "run_scope": _lists(start, pa.array(code[kept], pa.int32()), odd),
        "run_blocks": _lists(start, pa.array(chains.run_blocks[kept], pa.int64()), odd),
        "run_first_id": _lists(start, pa.array(chains.run_first[kept], pa.uint64(), mask=listed), odd),
        "ids": _lists(ids_start, pa.array(ids, pa.uint64()), odd),
    }


def _after(trace: Trace) -> Any:
    """What each turn waits for; null for the turn before alone, and for a first turn that waits for none."""
    t = trace.turns
    counts = np.diff(t.after_start)
    odd = waits_oddly(trace)
    start = np.concatenate(([0], np.cumsum(np.where(odd, counts, 0))))
    return _lists(start, pa.array(t.after[np.repeat(odd, counts)], pa.int32()), odd)


def _nullable(values: NDArray[np.signedinteger]) -> Any:
    return pa.array(values, mask=values < 0)


def _coded(codes: NDArray[np.signedinteger], names: tuple[str | None, ...]) -> Any:
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def _lists(start: NDArray[np.integer], values: Any, valid: NDArray[np.bool_]) -> Any:
    """Lists by offsets; null where not valid."""
    return pa.ListArray.from_arrays(pa.array(start, pa.int32()), values, mask=pa.array(~valid))
