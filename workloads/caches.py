"""What a prefix cache would have held: infinite, least-recently-used of any size, and time to live.

All three see the requests in the order of their recorded sends and cache prompts only. Each gives the
blocks of every prompt that were in the cache when it came. A block is evicted after those behind it: a
prefix cache without a block's prefix cannot use the block.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from workloads.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.trace import Trace


def infinite_hits(trace: Trace) -> NDArray[np.int64]:
    """Blocks of each prompt that an earlier request had sent: int64[T]."""
    return trace.tree.seen_depth(trace.turns.node, trace.send_rank())


def ttl_hits(trace: Trace, ttl_ns: int) -> NDArray[np.int64]:
    """Blocks of each prompt that were used within `ttl_ns` before it was sent: int64[T].

    A use lasts until the end of its request where the trace tells the service time.
    """
    if ttl_ns < 0:
        raise TraceError("must be 0 or more", field="ttl", value=ttl_ns)
    t = trace.turns
    at = np.where(t.arrival_ns >= 0, t.arrival_ns, trace.session_start_ns[trace.session_of])
    until = at + np.maximum(t.service_ns, 0) + ttl_ns
    parent, depth = trace.tree.parent.tolist(), trace.tree.depth.tolist()
    alive_until = [-1] * trace.tree.nodes
    hits = [0] * len(t)
    order = np.argsort(trace.send_rank())
    rows = zip(order.tolist(), t.node[order].tolist(), at[order].tolist(), until[order].tolist(), strict=True)
    for turn, end, now, then in rows:
        node = end
        # A use of a block is a use of its whole prefix: what is alive is the path down to some node.
        while node >= 0 and alive_until[node] < now:
            node = parent[node]
        if node >= 0:
            hits[turn] = depth[node]
        node = end
        while node >= 0:
            alive_until[node] = max(alive_until[node], then)
            node = parent[node]
    return np.array(hits, np.int64)


def lru_hits(trace: Trace, capacity_blocks: int) -> NDArray[np.int64]:
    """Blocks of each prompt found in a least-recently-used cache of `capacity_blocks`: int64[T]."""
    if capacity_blocks < 0:
        raise TraceError("must be 0 or more", field="capacity", value=capacity_blocks)
    tree, t = trace.tree, trace.turns
    parent, start = tree.parent.tolist(), tree.start().tolist()
    length = (tree.depth - tree.start()).tolist()
    resident: OrderedDict[int, int] = OrderedDict()  # node → blocks held from its start, oldest first
    used = 0
    hits = [0] * len(t)
    order = np.argsort(trace.send_rank())
    for turn, end in zip(order.tolist(), t.node[order].tolist(), strict=True):
        hit = -1
        node = end
        while node >= 0:
            held = resident.pop(node, 0)
            if held and hit < 0:
                hit = start[node] + held
            # Leaf first, so that every ancestor is younger than what hangs on it.
            resident[node] = length[node]
            used += length[node] - held
            node = parent[node]
        hits[turn] = max(hit, 0)
        while used > capacity_blocks:
            oldest, held = resident.popitem(last=False)
            spare = used - capacity_blocks
            if held > spare:
                resident[oldest] = held - spare
                resident.move_to_end(oldest, last=False)
                used = capacity_blocks
            else:
                used -= held
    return np.array(hits, np.int64)
