"""Several traces, or several copies of one, as one trace."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.errors import TraceError
from workloads.prefix_tree import PrefixTree
from workloads.trace import MOST_S, UNKNOWN, Header, Trace, Turns
from workloads.transform.select import take_sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_COPIES: Final = 10_000


def loop(trace: Trace, duration_s: float) -> Trace:
    """Repeat the trace until its sessions start over `duration_s` seconds.

    Every copy has session ids and block ids of its own, shared heads too: a copy hits what the original
    hits and nothing of another copy. Sessions that would start after the end are left out.
    """
    if not 0 < duration_s <= MOST_S:
        raise TraceError(f"must be above 0 and at most {MOST_S:g} seconds", field="loop", value=duration_s)
    starts = trace.session_start_ns
    span_ns = int(starts.max() - starts.min())
    if span_ns == 0:
        raise TraceError("all sessions start at one instant: set arrivals before looping", field="loop")
    period_ns = span_ns + span_ns // max(len(starts) - 1, 1)  # as long again as one mean gap
    wanted_ns = round(duration_s * 1e9)
    copies = -(-wanted_ns // period_ns)
    if not 1 <= copies <= MAX_COPIES:
        raise TraceError(f"must take 1..{MAX_COPIES} copies", field="loop", value=duration_s)
    parts = [trace] + [_copy(trace, k, k * period_ns) for k in range(1, copies)]
    joined = _joined(parts, replace(trace.header, copies=trace.header.copies * copies))
    keep = np.flatnonzero(joined.session_start_ns - starts.min() < wanted_ns)
    return take_sessions(joined, keep).warned(
        f"looped to {duration_s:g} s: {copies} copies with ids of their own"
    )


def merge(traces: Sequence[Trace]) -> Trace:
    """Play traces side by side from a common start. No block is shared between them."""
    if not traces:
        raise TraceError("nothing to merge", field="merge")
    if len(traces) == 1:
        return traces[0]
    first = traces[0].header
    for other in (t.header for t in traces[1:]):
        for name in ("block_size", "tail", "prefix_known", "token_scale", "time_scale"):
            mine, theirs = getattr(first, name), getattr(other, name)
            if mine != theirs:
                raise TraceError(f"traces to merge differ: {mine} and {theirs}", file=other.name, field=name)
    parts = [_renamed(t, f"{k}:") for k, t in enumerate(traces)]
    digest = hashlib.sha256("".join(t.header.digest for t in traces).encode()).hexdigest()
    caps = [t.header.gap_cap_ns for t in traces if t.header.gap_cap_ns is not None]
    header = replace(
        first,
        name=" + ".join(t.header.name for t in traces),
        format="+".join(sorted({t.header.format for t in traces})),
        digest=digest,
        sessions_known=all(t.header.sessions_known for t in traces),
        gap_cap_ns=min(caps, default=None),
        copies=max(t.header.copies for t in traces),
        warnings=tuple(dict.fromkeys(line for t in traces for line in t.header.warnings)),
    )
    joined = _joined(parts, header)
    order = np.argsort(joined.session_start_ns, kind="stable")
    return take_sessions(joined, order).warned(f"merged from {len(traces)} traces, which share no block")


def _copy(trace: Trace, number: int, shift_ns: int) -> Trace:
    """A later copy: times shifted, sessions and scopes under names of their own."""
    t = trace.turns
    arrival = np.where(t.arrival_ns >= 0, t.arrival_ns + shift_ns, UNKNOWN)
    return replace(
        trace,
        session_ids=tuple(f"{name}~{number}" for name in trace.session_ids),
        session_start_ns=trace.session_start_ns + shift_ns,
        turns=replace(t, arrival_ns=arrival),
        tree=replace(trace.tree, scopes=tuple(f"{name}~{number}" for name in trace.tree.scopes)),
    )


def _renamed(trace: Trace, prefix: str) -> Trace:
    return replace(
        trace,
        session_ids=tuple(prefix + name for name in trace.session_ids),
        tree=replace(trace.tree, scopes=tuple(prefix + name for name in trace.tree.scopes)),
        tenants=trace.tenants,
    )


def _joined(parts: Sequence[Trace], header: Header) -> Trace:
    """Sessions of all parts one after another; trees side by side."""
    nodes = np.cumsum([0] + [p.tree.nodes for p in parts])
    ids = np.cumsum([0] + [len(p.tree.ids) for p in parts])
    scopes = np.cumsum([1] + [len(p.tree.scopes) for p in parts])
    agents, agent_codes = _codes([p.agents for p in parts])
    tenants, tenant_codes = _codes([p.tenants for p in parts])

    def column(name: str) -> NDArray[np.int64]:
        return np.concatenate([getattr(p.turns, name) for p in parts])

    def tree_column(name: str, shift: NDArray[np.int64]) -> NDArray[np.int64]:
        shifted = [
            np.where(getattr(p.tree, name) >= 0, getattr(p.tree, name) + s, -1)
            for p, s in zip(parts, shift[:-1], strict=True)
        ]
        return np.concatenate(shifted)

    tree = PrefixTree(
        block_size=header.block_size,
        parent=tree_column("parent", nodes).astype(np.int32),
        depth=np.concatenate([p.tree.depth for p in parts]),
        scope=tree_column("scope", scopes).astype(np.int32),
        first_id=np.concatenate([p.tree.first_id for p in parts]),
        id_at=tree_column("id_at", ids),
        ids=np.concatenate([p.tree.ids for p in parts]),
        scopes=("", *(name for p in parts for name in p.tree.scopes)),
    )
    starts = np.cumsum([0] + [len(p) for p in parts])
    afters = np.cumsum([0] + [len(p.turns.after) for p in parts])
    turns = Turns(
        arrival_ns=column("arrival_ns"),
        service_ns=column("service_ns"),
        delay_ns=column("delay_ns"),
        input_tokens=column("input_tokens"),
        output_tokens=column("output_tokens"),
        node=np.concatenate(
            [
                np.where(p.turns.node >= 0, p.turns.node + n, -1)
                for p, n in zip(parts, nodes[:-1], strict=True)
            ]
        ).astype(np.int32),
        base=column("base").astype(np.int32),
        after_start=np.concatenate(
            [p.turns.after_start[:-1] + a for p, a in zip(parts, afters[:-1], strict=True)] + [afters[-1:]]
        ),
        after=column("after").astype(np.int32),
        shared_tokens=column("shared_tokens"),
        trigger=column("trigger").astype(np.int8),
        agent=np.concatenate([c[p.turns.agent] for p, c in zip(parts, agent_codes, strict=True)]),
        tenant=np.concatenate([c[p.turns.tenant] for p, c in zip(parts, tenant_codes, strict=True)]),
        priority=column("priority").astype(np.int32),
    )
    return Trace(
        header=header,
        session_ids=tuple(name for p in parts for name in p.session_ids),
        session_start_ns=np.concatenate([p.session_start_ns for p in parts]),
        turn_start=np.concatenate(
            [p.turn_start[:-1] + s for p, s in zip(parts, starts[:-1], strict=True)] + [starts[-1:]]
        ),
        turns=turns,
        tree=tree,
        agents=agents,
        tenants=tenants,
    )


def _codes(names: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[NDArray[np.int32]]]:
    """One list of names for all parts, and each part's old codes in it (the last entry keeps -1)."""
    index: dict[str, int] = {}
    codes = [
        np.array([index.setdefault(n, len(index)) for n in part] + [UNKNOWN], np.int32) for part in names
    ]
    return tuple(index), codes
