"""The native format: one Parquet file, a row a turn, the prefix tree as links between rows.

A row's prompt begins like that of `parent_row` for `shared_blocks` blocks, a point that the parent itself
was the first to reach; the blocks after that, up to `blocks`, are its own, and their ids count up from
`first_id` in the scope of the row's session. Where that is not so, `first_id` is null and the own blocks
come as runs, each with a scope and a first id, or null and the ids listed in `ids`. Where a turn waits for
the turn before it, and for no other, `after` is null. So the lists stay nearly empty, nothing has to be
searched when loading, and ten million rows are a few array operations.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from workloads.trace import Header

VERSION: Final = 1
METADATA_KEY: Final = b"pddbench_trace"

# Codes of run_scope below the first listed scope.
GLOBAL_SCOPE: Final = 0
OWN_SESSION: Final = 1
LISTED_SCOPES: Final = 2

TRIGGERS: Final = (None, "user", "tool")  # by workloads.trace.Trigger

_NAME: Final = pa.dictionary(pa.int32(), pa.string())

SCHEMA: Final = pa.schema(
    [
        pa.field("session_id", _NAME, nullable=False),
        pa.field("session_start_ns", pa.int64(), nullable=False),
        pa.field("arrival_ns", pa.int64()),
        pa.field("service_ns", pa.int64()),
        pa.field("delay_ns", pa.int64(), nullable=False),
        pa.field("input_tokens", pa.int64(), nullable=False),
        pa.field("output_tokens", pa.int64(), nullable=False),
        pa.field("after", pa.list_(pa.int32())),
        pa.field("base", pa.int32()),
        pa.field("shared_tokens", pa.int64(), nullable=False),
        pa.field("trigger", _NAME),
        pa.field("agent", _NAME, nullable=False),
        pa.field("tenant", _NAME),
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("parent_row", pa.int64()),
        pa.field("shared_blocks", pa.int64(), nullable=False),
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("first_id", pa.uint64()),
        pa.field("run_scope", pa.list_(pa.int32())),
        pa.field("run_blocks", pa.list_(pa.int64())),
        pa.field("run_first_id", pa.list_(pa.uint64())),
        pa.field("ids", pa.list_(pa.uint64())),
    ]
)


class Metadata(msgspec.Struct, frozen=True):
    """What the file's schema metadata holds, as JSON."""

    version: int
    header: Header
    scopes: tuple[str, ...]
