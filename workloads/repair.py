"""Mends the known defects of a trace, and says what it changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workloads.errors import TraceError
from workloads.transform.select import take_sessions
from workloads.validation import fork_duplicates

if TYPE_CHECKING:
    from workloads.trace import Trace


def repair(trace: Trace) -> Trace:
    """Without fork duplicates and with 1 token where an output had none; each change is a warning."""
    lines: list[str] = []
    twins = fork_duplicates(trace)
    if len(twins):
        keep = np.setdiff1d(np.arange(len(trace.session_ids)), twins)
        if not len(keep):
            raise TraceError("every session is a duplicate", file=trace.header.name)
        before = len(trace)
        trace = take_sessions(trace, keep)
        lines.append(
            f"repaired: {len(twins)} sessions ({before - len(trace)} turns) left out as duplicates of a fork"
        )
    empty = trace.turns.output_tokens == 0
    if empty.any():
        turns = replace(trace.turns, output_tokens=np.where(empty, 1, trace.turns.output_tokens))
        trace = replace(trace, turns=turns)
        lines.append(f"repaired: {int(empty.sum())} outputs of 0 tokens became 1")
    return trace.warned(*lines)
