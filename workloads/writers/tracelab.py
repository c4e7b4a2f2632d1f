"""Writes TraceLab CSVs: rounds with the prefix the session had, new input, output and the wait after."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.writers.structure import branches, hits_across_sessions

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.trace import Trace

NAME: Final = "tracelab"
_COLUMNS: Final = (
    "session_id",
    "arrival_time",
    "round_idx",
    "prefix_len",
    "input_len",
    "output_len",
    "tool_wait_after_ms",
)


def losses(trace: Trace) -> list[str]:
    """What the format cannot say about this trace."""
    out = []
    if not trace.header.prefix_known:
        out.append("that prefixes are unknown: the format would state that nothing is shared")
    count = branches(trace)
    if count:
        out.append(f"{count} turns that run in parallel or wait for several others")
    count = hits_across_sessions(trace)
    if count:
        out.append(f"the prefixes that {count} turns share with other sessions")
    count = _far_bases(trace)
    if count:
        out.append(f"{count} turns that continue another turn than the one before")
    if trace.header.block_size > 1:
        out.append(f"that prefixes are kept in whole blocks of {trace.header.block_size} tokens")
    if trace.tenants:
        out.append("tenants")
    if trace.turns.priority.any():
        out.append("priorities")
    return out


def write(trace: Trace, path: Path) -> None:
    """Write the trace, session after session."""
    t = trace.turns
    base = trace.base_turn
    common = np.where(base >= 0, trace.tree.common_depth(t.node[np.maximum(base, 0)], t.node), 0)
    kept = np.minimum(common * trace.header.block_size, t.input_tokens)
    before = np.concatenate(([0], (t.input_tokens + t.output_tokens)[:-1]))
    prompt_before = np.concatenate(([0], t.input_tokens[:-1]))
    whole = (base == np.arange(len(t)) - 1) & (common >= prompt_before // trace.header.block_size)
    prefix = np.where(whole & (before < t.input_tokens), before, kept)
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(_COLUMNS)
        for s, name in enumerate(trace.session_ids):
            lo, hi = int(trace.turn_start[s]), int(trace.turn_start[s + 1])
            arrival = _ms(int(trace.session_start_ns[s]))
            for turn in range(lo, hi):
                wait = _ms(int(t.delay_ns[turn + 1])) if turn + 1 < hi else 0
                new = int(t.input_tokens[turn] - prefix[turn])
                writer.writerow(
                    [name, arrival, turn - lo, int(prefix[turn]), new, int(t.output_tokens[turn]), wait]
                )


def _far_bases(trace: Trace) -> int:
    base = trace.base_turn
    return int(((base >= 0) & (base != np.arange(len(trace)) - 1)).sum())


def _ms(ns: int) -> float | int:
    whole, rest = divmod(ns, 1_000_000)
    return whole if rest == 0 else ns / 1e6
