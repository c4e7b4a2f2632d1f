"""Writes Mooncake JSON lines: milliseconds, lengths, global block ids with one for a part-filled last block.

Sessions stand in `session_id`, `turn` and `delay`, which readers of plain Mooncake pass over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from workloads.trace import Tail, Trigger
from workloads.transform.schedule import instants
from workloads.writers.structure import branches

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from workloads.trace import Trace

NAME: Final = "mooncake"
_TRIGGERS: Final = {Trigger.USER: "user", Trigger.TOOL: "tool"}


def losses(trace: Trace) -> list[str]:
    """What the format cannot say about this trace."""
    out = []
    if not trace.header.prefix_known:
        out.append("the prompts' block ids, which the trace does not tell either: every prompt would be new")
    if trace.tree.block_size == 1:
        out.append("prefixes known to the token: its own are whole blocks")
    count = branches(trace)
    if count:
        out.append(f"{count} turns that run in parallel or wait for several others")
    return out


def write(trace: Trace, path: Path) -> None:
    """Write the trace in order of its sends."""
    rows = _Rows(trace)
    encoder = msgspec.json.Encoder()
    with path.open("wb") as out:
        for turn in np.argsort(rows.at_ns, kind="stable").tolist():
            out.write(encoder.encode(rows.row(turn)) + b"\n")


class _Rows:
    def __init__(self, trace: Trace) -> None:
        tree = trace.tree
        self.trace = trace
        self.at_ns = instants(trace)
        self.sent: dict[int, int] = {}  # turns written of each session
        self.session = trace.session_of
        length = tree.depth - tree.start()
        self.offset = (np.cumsum(length) - length).tolist()  # global id of each node's first block
        self.length = length.tolist()
        self.parent = tree.parent.tolist()
        self.fresh = int(length.sum())

    def row(self, turn: int) -> dict[str, Any]:
        """The next row; a session's turns are numbered as they are sent."""
        t = self.trace.turns
        session = int(self.session[turn])
        number = self.sent.get(session, 0)
        self.sent[session] = number + 1
        row: dict[str, Any] = {
            "timestamp": _ms(int(self.at_ns[turn])),
            "input_length": int(t.input_tokens[turn]),
            "output_length": int(t.output_tokens[turn]),
            "hash_ids": self._ids(turn).tolist(),
        }
        if self.trace.header.sessions_known:
            row |= {"session_id": self.trace.session_ids[session], "turn": number}
            if number:
                row["delay"] = _ms(int(t.delay_ns[turn]))
        if t.service_ns[turn] >= 0:
            row["api_time_ms"] = _ms(int(t.service_ns[turn]))
        if t.shared_tokens[turn]:
            row["shareable_prefix_tokens"] = int(t.shared_tokens[turn])
        if t.trigger[turn]:
            row["trigger"] = _TRIGGERS[Trigger(int(t.trigger[turn]))]
        if t.agent[turn]:
            row["agent"] = self.trace.agents[t.agent[turn]]
        if t.tenant[turn] >= 0:
            row["tenant"] = self.trace.tenants[t.tenant[turn]]
        if t.priority[turn]:
            row["priority"] = int(t.priority[turn])
        return row

    def _ids(self, turn: int) -> NDArray[np.int64]:
        node = int(self.trace.turns.node[turn])
        runs: list[NDArray[np.int64]] = []
        while node >= 0:
            runs.append(np.arange(self.offset[node], self.offset[node] + self.length[node]))
            node = self.parent[node]
        part_filled = self.trace.turns.input_tokens[turn] % self.trace.header.block_size > 0
        if not self.trace.header.prefix_known:
            missing = -(-int(self.trace.turns.input_tokens[turn]) // self.trace.header.block_size)
        else:
            missing = int(self.trace.header.tail is Tail.WHOLE and part_filled)
        runs.insert(0, np.arange(self.fresh, self.fresh + missing))
        self.fresh += missing
        return np.concatenate(runs[::-1])


def _ms(ns: int) -> float | int:
    whole, rest = divmod(ns, 1_000_000)
    return whole if rest == 0 else ns / 1e6
