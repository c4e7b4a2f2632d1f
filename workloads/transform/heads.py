"""Sharing of tools and system prompts between sessions whose ids do not tell it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workloads.prefix_tree import NO_NODE, PrefixTree
from workloads.transform.select import pruned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.trace import Trace


def share_heads(trace: Trace) -> Trace:
    """Make the heads of sessions (`shared_tokens`) common where they are of one length.

    For traces whose block ids are local to the session: the first whole blocks of tools and system prompt
    become the same blocks in every session, and subagent, with a head of that length. Where a context
    leaves its head early, it leaves the common one at the same block.
    """
    heads = _Heads(trace)
    if not heads.members:
        return trace
    tree, node = heads.grafted()
    line = (
        f"heads of equal length taken as shared: {len(heads.groups)} heads over {len(heads.members)} contexts"
    )
    return replace(trace, tree=tree, turns=replace(trace.turns, node=node)).warned(line)


class _Heads:
    """Which nodes lie on a head, by the path of the first turn under each root."""

    def __init__(self, trace: Trace) -> None:
        tree, t = trace.tree, trace.turns
        self.trace = trace
        self.first = tree.first_touch(t.node, np.arange(len(t)))
        self.members: list[tuple[int, int]] = []  # root node, head blocks
        for root in np.flatnonzero((tree.parent < 0) & (tree.scope != 0)).tolist():
            turn = int(self.first[root])
            if turn < len(t):
                blocks = min(int(t.shared_tokens[turn]) // tree.block_size, int(tree.depth[t.node[turn]]))
                if blocks:
                    self.members.append((root, blocks))
        self.groups = sorted({blocks for _, blocks in self.members})

    def grafted(self) -> tuple[PrefixTree, NDArray[np.int32]]:
        """The tree with the heads' nodes replaced by common ones, and the new node of every turn."""
        tree, t = self.trace.tree, self.trace.turns
        cuts: dict[int, set[int]] = {blocks: {blocks} for blocks in self.groups}
        inside: list[tuple[int, int, int]] = []  # node, head, depth at which the node ends on it
        crossing: list[tuple[int, int]] = []  # node that ends behind the head, head
        for root, blocks in self.members:
            for node in tree.path(int(t.node[self.first[root]])):
                depth = int(tree.depth[node])
                if depth > blocks:
                    crossing.append((node, blocks))
                    break
                inside.append((node, blocks, depth))
                cuts[blocks].add(depth)
        common = _CommonHeads(cuts, len(tree.scopes))
        count = len(common.depth)
        place = np.arange(tree.nodes) + count
        for node, blocks, depth in inside:
            place[node] = common.at[blocks, depth]
        parent = np.where(tree.parent >= 0, place[tree.parent], NO_NODE)
        skipped = np.zeros(tree.nodes, np.int64)
        start = tree.start()
        for node, blocks in crossing:
            parent[node] = common.at[blocks, blocks]
            skipped[node] = blocks - start[node]
        new = PrefixTree(
            block_size=tree.block_size,
            parent=np.concatenate((common.parent, parent)).astype(np.int32),
            depth=np.concatenate((common.depth, tree.depth)),
            scope=np.concatenate((common.scope, tree.scope)).astype(np.int32),
            first_id=np.concatenate((common.first_id, _advanced(tree, skipped))),
            id_at=np.concatenate((np.full(count, -1), np.where(tree.id_at >= 0, tree.id_at + skipped, -1))),
            ids=tree.ids,
            scopes=(*tree.scopes, *(f"head {blocks * tree.block_size}" for blocks in self.groups)),
        )
        return pruned(new, np.where(t.node >= 0, place[t.node], NO_NODE).astype(np.int32))


class _CommonHeads:
    """Nodes of the common heads: each head a chain, cut wherever a context leaves it."""

    def __init__(self, cuts: dict[int, set[int]], first_scope: int) -> None:
        self.at: dict[tuple[int, int], int] = {}
        parents: list[int] = []
        depths: list[int] = []
        begins: list[int] = []
        scopes: list[int] = []
        for number, (blocks, ends) in enumerate(sorted(cuts.items())):
            above, begin = NO_NODE, 0
            for depth in sorted(ends):
                self.at[blocks, depth] = len(parents)
                parents.append(above)
                depths.append(depth)
                begins.append(begin)
                scopes.append(first_scope + number)
                above, begin = len(parents) - 1, depth
        self.parent = np.array(parents, np.int64)
        self.depth = np.array(depths, np.int64)
        self.first_id = np.array(begins, np.uint64)
        self.scope = np.array(scopes, np.int64)


def _advanced(tree: PrefixTree, skipped: NDArray[np.int64]) -> NDArray[np.uint64]:
    """First id of each node after its first `skipped` blocks went to a head."""
    counted: NDArray[np.uint64] = tree.first_id + skipped.astype(np.uint64)
    listed = np.flatnonzero((tree.id_at >= 0) & (skipped > 0))
    counted[listed] = tree.ids[tree.id_at[listed] + skipped[listed]]
    return counted
