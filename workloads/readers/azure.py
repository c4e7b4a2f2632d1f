"""Azure LLM inference traces: CSV of instant, context tokens and generated tokens. Lengths only.

Nothing is said about what prompts have in common: no hit rate can be stated, and a replay shares nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from workloads.builder import Place, TraceBuilder
from workloads.prefix_tree import NO_NODE
from workloads.readers.table import Row, rows
from workloads.source import digest, files
from workloads.trace import Tail, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "azure"
LENGTHS_ONLY: Final = "lengths only: what prompts have in common is unknown, and a replay shares nothing"
_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def sniff(_path: Path, head: bytes) -> bool:
    """Whether the header line is that of an Azure trace."""
    line = head.split(b"\n", 1)[0]
    return b"ContextTokens" in line and b"GeneratedTokens" in line


def read(path: Path, _options: ReadOptions) -> Trace:
    """One CSV file, or a directory of them read as one."""
    sources = files(path, (".csv",))
    builder = TraceBuilder(block_size=1, tail=Tail.WHOLE, prefix_known=False)
    origin: int | None = None
    before = 0
    for source in sources:
        for row in rows(source, _COLUMNS):
            at = _instant_ns(row)
            origin = at if origin is None else origin
            if at < max(before, origin):
                raise row.wrong("TIMESTAMP", "time runs backwards")
            before = at
            place = Place(row.file, row.line)
            session = builder.open_session(f"r{len(builder)}", at - origin, place)
            builder.add_turn(
                session,
                place,
                input_tokens=row.integer("ContextTokens"),
                output_tokens=row.integer("GeneratedTokens"),
                node=NO_NODE,
                after=[],
                base=None,
                delay_ns=0,
                arrival_ns=at - origin,
            )
    return builder.build(
        name=path.name,
        source_format=NAME,
        digest=digest(sources),
        sessions_known=False,
        warnings=[LENGTHS_ONLY],
    )


def _instant_ns(row: Row) -> int:
    """Nanoseconds of the UNIX epoch; digits below a microsecond are cut."""
    text = row.text("TIMESTAMP").strip()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise row.wrong("TIMESTAMP", "must be a date and time as in ISO 8601") from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    whole = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * 10**9 + whole.microseconds * 1000
