"""Keeping some of the sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workloads.prefix_tree import NEVER, NO_NODE
from workloads.trace import Turns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.prefix_tree import PrefixTree
    from workloads.trace import Trace


def first_sessions(trace: Trace, count: int) -> Trace:
    """The `count` sessions that start first."""
    order = np.argsort(trace.session_start_ns, kind="stable")
    kept = take_sessions(trace, np.sort(order[:count]))
    return kept.warned(f"the first {count} of {len(trace.session_ids)} sessions")


def take_sessions(trace: Trace, sessions: NDArray[np.integer]) -> Trace:
    """These sessions, in this order, with the part of the tree they need."""
    counts = np.diff(trace.turn_start)[sessions]
    start = np.concatenate(([0], np.cumsum(counts)))
    take = np.repeat(trace.turn_start[:-1][sessions] - start[:-1], counts) + np.arange(int(start[-1]))
    t = trace.turns
    sizes = np.diff(t.after_start)[take]
    after_start = np.concatenate(([0], np.cumsum(sizes)))
    after = np.repeat(t.after_start[:-1][take] - after_start[:-1], sizes) + np.arange(int(after_start[-1]))
    tree, node = pruned(trace.tree, t.node[take])
    turns = Turns(
        arrival_ns=t.arrival_ns[take],
        service_ns=t.service_ns[take],
        delay_ns=t.delay_ns[take],
        input_tokens=t.input_tokens[take],
        output_tokens=t.output_tokens[take],
        node=node,
        base=t.base[take],
        after_start=after_start,
        after=t.after[after],
        shared_tokens=t.shared_tokens[take],
        trigger=t.trigger[take],
        agent=t.agent[take],
        tenant=t.tenant[take],
        priority=t.priority[take],
    )
    return replace(
        trace,
        session_ids=tuple(trace.session_ids[s] for s in sessions),
        session_start_ns=trace.session_start_ns[sessions],
        turn_start=start,
        turns=turns,
        tree=tree,
    )


def pruned(tree: PrefixTree, node: NDArray[np.int32]) -> tuple[PrefixTree, NDArray[np.int32]]:
    """The nodes on the paths to `node`, and the new index of each of those."""
    kept = tree.first_touch(node, np.arange(len(node))) < NEVER
    place = np.cumsum(kept) - 1
    parent = tree.parent[kept]
    smaller = replace(
        tree,
        parent=np.where(parent >= 0, place[parent], NO_NODE).astype(np.int32),
        depth=tree.depth[kept],
        scope=tree.scope[kept],
        first_id=tree.first_id[kept],
        id_at=tree.id_at[kept],
    )
    moved = np.where(node >= 0, place[node], NO_NODE) if tree.nodes else node
    return smaller, moved.astype(np.int32)
