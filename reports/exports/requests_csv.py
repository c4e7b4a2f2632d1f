"""Every measured request as a line of CSV: client columns, router columns (`router_`), and derived ms."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

from reports.exports.rows import Row, joined
from reports.run import Run
from reports.schema import HANDOFFS, REQUESTS

_LISTS: Final = {"token_offsets_ns", "output_ids"}
_CLIENT: Final = [c.name for c in REQUESTS.columns if c.name not in _LISTS]
_ROUTER: Final = [c.name for c in HANDOFFS.columns if c.name not in {"request_id", "session_id"}]
_DERIVED: Final = ("ttft_ms", "tpot_ms", "e2e_latency_ms", "handoff_gap_ms")


def write(run: Run, cell: str, rep: int, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow([*_CLIENT, *_DERIVED, *(f"router_{name}" for name in _ROUTER)])
        for row, router in joined(run, cell, rep):
            derived = _derived(row, router)
            theirs = [None] * len(_ROUTER) if router is None else [router[name] for name in _ROUTER]
            writer.writerow([*(row[name] for name in _CLIENT), *derived, *theirs])


def _derived(row: Row, router: Row | None) -> list[Any]:
    sent, first, last, tokens = (
        row[n] for n in ("sent_ns", "first_token_ns", "last_token_ns", "output_tokens")
    )
    ttft = None if None in (sent, first) else (first - sent) / 1e6
    tpot = None if None in (first, last, tokens) or tokens < 2 else (last - first) / (tokens - 1) / 1e6
    e2e = None if None in (sent, last) else (last - sent) / 1e6
    switch = None if router is None else router["switch_index"]
    offsets = row["token_offsets_ns"]
    gap = None
    if switch and offsets and switch < len(offsets):
        gap = (offsets[switch] - offsets[switch - 1]) / 1e6
    return [ttft, tpot, e2e, gap]
