"""Small traces from lists of block ids, and what caches do to them block by block."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from workloads.builder import Place, TraceBuilder
from workloads.trace import Tail, Trace

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
PLACE = Place("test")
BLOCK = 4

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not beside this checkout")

# Prompts that often begin alike, and never hold an id twice after one prefix: short paths in a small tree.
prompts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=30)


def trace_of(ids: list[list[int]], *, gap_ns: int = 10, service_ns: int | None = None) -> Trace:
    """One request a session, sent `gap_ns` apart, in one global scope."""
    builder = TraceBuilder(block_size=BLOCK, tail=Tail.WHOLE)
    for number, blocks in enumerate(ids):
        session = builder.open_session(f"s{number}", number * gap_ns, PLACE)
        node = builder.tree.insert(0, np.array(blocks, np.uint64), number)
        builder.add_turn(
            session,
            PLACE,
            input_tokens=len(blocks) * BLOCK,
            output_tokens=1,
            node=node,
            after=[],
            base=None,
            delay_ns=0,
            arrival_ns=number * gap_ns,
            service_ns=service_ns,
        )
    return builder.build(name="test", source_format="test", digest="0")


def prefixes(blocks: list[int]) -> list[tuple[int, ...]]:
    return [tuple(blocks[: n + 1]) for n in range(len(blocks))]


def infinite(ids: list[list[int]]) -> list[int]:
    """Blocks hit, one block at a time, each named by its whole prefix."""
    seen: set[tuple[int, ...]] = set()
    out = []
    for blocks in ids:
        hits = 0
        for prefix in prefixes(blocks):
            if prefix not in seen:
                break
            hits += 1
        seen.update(prefixes(blocks))
        out.append(hits)
    return out


def lru(ids: list[list[int]], capacity: int) -> list[int]:
    """The same with room for `capacity` blocks; of one request, the last block is evicted first."""
    held: OrderedDict[tuple[int, ...], None] = OrderedDict()
    out = []
    for blocks in ids:
        hits = 0
        for prefix in prefixes(blocks):
            if prefix not in held:
                break
            hits += 1
        for prefix in reversed(prefixes(blocks)):
            held.pop(prefix, None)
            held[prefix] = None
        while len(held) > capacity:
            held.popitem(last=False)
        out.append(hits)
    return out


def ttl(ids: list[list[int]], gap_ns: int, ttl_ns: int) -> list[int]:
    """The same where a block lives `ttl_ns` after its last use."""
    used: dict[tuple[int, ...], int] = {}
    out = []
    for number, blocks in enumerate(ids):
        now = number * gap_ns
        hits = 0
        for prefix in prefixes(blocks):
            if prefix not in used or now - used[prefix] > ttl_ns:
                break
            hits += 1
        used.update(dict.fromkeys(prefixes(blocks), now))
        out.append(hits)
    return out


def paths(trace: Trace) -> list[list[tuple[str, int]]]:
    """(scope, id) of every block of every turn."""
    tree = trace.tree
    return [
        [(tree.scopes[tree.scope[n]], int(i)) for n in tree.path(int(node)) for i in tree.run_ids(n)]
        for node in trace.turns.node
    ]


def assert_same(left: Trace, right: Trace) -> None:
    """Two traces that say the same."""
    assert left.header == right.header
    assert left.session_ids == right.session_ids
    for name in ("session_start_ns", "turn_start"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    for name in left.turns.__slots__:
        if name not in {"node", "agent", "tenant"}:
            np.testing.assert_array_equal(getattr(left.turns, name), getattr(right.turns, name), err_msg=name)
    assert [left.agents[a] for a in left.turns.agent] == [right.agents[a] for a in right.turns.agent]
    assert _names(left) == _names(right)
    assert paths(left) == paths(right)


def _names(trace: Trace) -> list[str | None]:
    return [None if t < 0 else trace.tenants[t] for t in trace.turns.tenant]
