"""The prefix tree of a trace's prompts, as columns.

A prompt is a sequence of blocks of `block_size` tokens. Prompts that begin alike share a path from the
root, so a trace of 94 million block references is some tens of thousands of nodes. A node is a run of
blocks with no branch inside; a prompt is the path that ends at one node. Two blocks are the same block
exactly when they are the same position of the same node: equal ids after different prefixes are
different blocks, as they are in every prefix cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_NODE: Final = -1
NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class PrefixTree:
    """Columns of N nodes; a parent's index is always below its children's.

    parent    int32[N]   parent node, -1 at the root
    depth     int64[N]   blocks from the root to the end of the node's run
    scope     int32[N]   index into `scopes`: ids are unique within a scope only ('' is the global one)
    first_id  uint64[N]  id of the run's first block
    id_at     int64[N]   where the run's ids begin in `ids`; -1: they count up from first_id
    ids       uint64[M]  ids of the runs that do not count up
    """

    block_size: int
    parent: NDArray[np.int32]
    depth: NDArray[np.int64]
    scope: NDArray[np.int32]
    first_id: NDArray[np.uint64]
    id_at: NDArray[np.int64]
    ids: NDArray[np.uint64]
    scopes: tuple[str, ...]

    @property
    def nodes(self) -> int:
        return len(self.parent)

    def start(self) -> NDArray[np.int64]:
        """Blocks from the root to the start of each node's run: int64[N]."""
        start = np.zeros(self.nodes, np.int64)
        inner = self.parent >= 0
        start[inner] = self.depth[self.parent[inner]]
        return start

    def depth_of(self, node: NDArray[np.integer]) -> NDArray[np.int64]:
        """Blocks on the path that ends at each node (-1 gives 0)."""
        if not self.nodes:
            return np.zeros(len(node), np.int64)
        return np.where(node >= 0, self.depth[node], 0)

    def parent_of(self, node: NDArray[np.integer]) -> NDArray[np.int32]:
        """Parent of each node (-1 gives -1)."""
        if not self.nodes:
            return np.full(len(node), NO_NODE, np.int32)
        return np.where(node >= 0, self.parent[node], NO_NODE).astype(np.int32)

    def run_ids(self, node: int) -> NDArray[np.uint64]:
        """Ids of one node's own run."""
        above = int(self.depth[self.parent[node]]) if self.parent[node] >= 0 else 0
        blocks = int(self.depth[node]) - above
        at = int(self.id_at[node])
        if at >= 0:
            return self.ids[at : at + blocks]
        return np.uint64(self.first_id[node]) + np.arange(blocks, dtype=np.uint64)

    def path(self, node: int) -> list[int]:
        """Nodes from the root to `node`."""
        out: list[int] = []
        while node >= 0:
            out.append(node)
            node = int(self.parent[node])
        return out[::-1]

    def path_ids(self, node: int) -> NDArray[np.uint64]:
        """Block ids of the whole path to `node`."""
        runs = [self.run_ids(n) for n in self.path(node)]
        return np.concatenate(runs) if runs else np.zeros(0, np.uint64)

    def common_depth(self, left: NDArray[np.integer], right: NDArray[np.integer]) -> NDArray[np.int64]:
        """Blocks that the paths to `left` and `right` share, pairwise."""
        a = np.array(left, np.int32)
        b = np.array(right, np.int32)
        active = np.flatnonzero((a != b) & (a >= 0) & (b >= 0))
        a[(b < 0)] = NO_NODE
        while len(active):
            # The larger index cannot be an ancestor of the smaller: it climbs.
            x, y = a[active], b[active]
            a[active] = np.where(x > y, self.parent_of(x), x)
            b[active] = np.where(y > x, self.parent_of(y), y)
            x, y = a[active], b[active]
            active = active[(x != y) & (x >= 0) & (y >= 0)]
        a[b < 0] = NO_NODE
        return self.depth_of(a)

    def climb(self, node: NDArray[np.integer], depth: NDArray[np.integer]) -> NDArray[np.int32]:
        """The deepest node on each path that ends at or above `depth` blocks."""
        out = np.array(node, np.int32)
        active = np.flatnonzero(self.depth_of(out) > depth)
        while len(active):
            out[active] = self.parent_of(out[active])
            active = active[self.depth_of(out[active]) > depth[active]]
        return out

    def first_touch(self, node: NDArray[np.integer], rank: NDArray[np.integer]) -> NDArray[np.int64]:
        """Lowest `rank` among the paths through each node: int64[N], NEVER where none passes.

        Work is one step for each node a path is first to pass, so linear in nodes and paths.
        """
        first = np.full(self.nodes, NEVER, np.int64)
        here = np.asarray(node, np.int32)
        mine = np.asarray(rank, np.int64)
        keep = here >= 0
        here, mine = here[keep], mine[keep]
        while len(here):
            lower = mine < first[here]
            here, mine = here[lower], mine[lower]
            np.minimum.at(first, here, mine)
            won = first[here] == mine
            here, mine = self.parent_of(here[won]), mine[won]
            keep = here >= 0
            here, mine = here[keep], mine[keep]
        return first

    def seen_depth(self, node: NDArray[np.integer], rank: NDArray[np.integer]) -> NDArray[np.int64]:
        """Blocks of each path that a path of lower rank had already passed (ranks are distinct)."""
        first = self.first_touch(node, rank)
        here = np.array(node, np.int32)
        active = np.flatnonzero(here >= 0)
        while len(active):
            active = active[first[here[active]] >= rank[active]]
            here[active] = self.parent_of(here[active])
            active = active[here[active] >= 0]
        return self.depth_of(here)
