"""The prefix tree told turn by turn: which earlier turn a prompt begins like, how far, and what is its own.

A turn's prompt shares its first `shared` blocks with the prompt of `parent_row` and goes on with blocks of
its own up to `blocks`. This is how the generator makes trees and how the native format stores them: a row a
turn, no search on loading. Own blocks come as runs, each in one scope and either counting up or listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.prefix_tree import NO_NODE, PrefixTree

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Columns of T turns and the R runs and M listed ids they own.

    parent_row  int64[T]   an earlier turn, -1 for none
    shared      int64[T]   blocks shared with it
    blocks      int64[T]   blocks of the prompt
    run_start   int64[T+1] offsets of each turn's runs
    run_scope   int32[R]   index of the scope
    run_blocks  int64[R]   length, above 0; a turn's add up to blocks - shared
    run_first   uint64[R]  id of the first block
    run_at      int64[R]   where the run's ids begin in `ids`; -1: they count up
    ids         uint64[M]
    """

    parent_row: NDArray[np.int64]
    shared: NDArray[np.int64]
    blocks: NDArray[np.int64]
    run_start: NDArray[np.int64]
    run_scope: NDArray[np.int32]
    run_blocks: NDArray[np.int64]
    run_first: NDArray[np.uint64]
    run_at: NDArray[np.int64]
    ids: NDArray[np.uint64]

    @property
    def run_row(self) -> NDArray[np.int64]:
        """Turn of each run: int64[R]."""
        return np.repeat(np.arange(len(self.blocks)), np.diff(self.run_start))


def owned(parent_row: NDArray[np.int64], shared: NDArray[np.int64]) -> NDArray[np.int64]:
    """The turn that was first to send each last shared block: parents moved up until the point is theirs."""
    parent = np.where(shared > 0, parent_row, -1)
    active = np.flatnonzero(parent >= 0)
    while len(active):
        active = active[shared[active] <= shared[parent[active]]]
        parent[active] = parent_row[parent[active]]
    return parent


def chains_of(tree: PrefixTree, node: NDArray[np.int32]) -> Chains:
    """Chains of the prompts that end at `node`, in this order; a node belongs to the first that passes it."""
    rows = len(node)
    first = tree.first_touch(node, np.arange(rows))
    length = tree.depth - tree.start()
    order = np.flatnonzero((first < rows) & (length > 0))
    order = order[np.lexsort((tree.depth[order], first[order]))]
    owner, length, at, scope = first[order], length[order], tree.id_at[order], tree.scope[order]
    first_id = tree.first_id[order]
    begins = np.ones(len(order), bool)
    begins[1:] = owner[1:] != owner[:-1]
    top = np.array(node, np.int64)
    top[owner[begins]] = tree.parent[order[begins]]
    shared = tree.depth_of(top)
    parent_row = np.where(shared > 0, first[top], -1) if tree.nodes else np.full(rows, -1)
    # Neighbours of one turn and scope whose ids go on are one run.
    counts_on = (at[1:] < 0) & (at[:-1] < 0) & (first_id[1:] == first_id[:-1] + length[:-1].astype(np.uint64))
    lists_on = (at[1:] >= 0) & (at[1:] == at[:-1] + length[:-1]) & (at[:-1] >= 0)
    heads = begins.copy()
    heads[1:] |= (scope[1:] != scope[:-1]) | ~(counts_on | lists_on)
    head = np.flatnonzero(heads)
    return Chains(
        parent_row=parent_row,
        shared=shared,
        blocks=tree.depth_of(node),
        run_start=np.searchsorted(owner[head], np.arange(rows + 1)),
        run_scope=scope[head],
        run_blocks=np.add.reduceat(length, head) if len(head) else length,
        run_first=first_id[head],
        run_at=at[head],
        ids=tree.ids,
    )


def tree_of(chains: Chains, block_size: int, scopes: tuple[str, ...]) -> tuple[PrefixTree, NDArray[np.int32]]:
    """The tree of these chains and the node at which each prompt ends.

    Every turn's `parent_row` must own the point it is left at (see `owned`).
    """
    rows = len(chains.blocks)
    shared, blocks, parent_row = chains.shared, chains.blocks, chains.parent_row
    stride = int(blocks.max(initial=0)) + 1
    run_row, length = chains.run_row, chains.run_blocks
    total = np.cumsum(length)
    before = np.concatenate(([0], total))[chains.run_start[:-1]]
    run_end = total - before[run_row] + shared[run_row]
    has = parent_row >= 0
    safe = np.where(has, parent_row, 0)
    at_end = has & (shared == blocks[safe])
    inner = np.flatnonzero(has & ~at_end)
    row, run, depth = run_row, np.arange(len(run_row)), run_end
    key = run_row * stride + run_end  # ascending: rows in order, ends in order within a row
    leave = parent_row[inner] * stride + shared[inner]
    if len(inner):
        place = np.searchsorted(key, leave)
        cuts = np.sort(leave[key[place] != leave])
        cuts = cuts[np.diff(cuts, prepend=-1) > 0]
        whole = np.concatenate((key, cuts))
        whole.sort(kind="stable")
        run = np.searchsorted(key, whole)
        key, row = whole, run_row[run]
        depth = key - row * stride
    begins = np.ones(len(row), bool)
    begins[1:] = row[1:] != row[:-1]
    ends = np.append(begins[1:], True)[: len(row)]
    last = np.full(rows, NO_NODE, np.int64)
    last[row[ends]] = np.flatnonzero(ends)
    leaf = np.where(at_end, last[safe], NO_NODE)
    leaf[inner] = np.searchsorted(key, leave)
    parent = np.arange(len(row)) - 1
    parent[begins] = leaf[row[begins]]
    above = np.empty(len(row), np.int64)
    above[1:] = depth[:-1]
    above[begins] = shared[row[begins]]
    into = above - (run_end - length)[run]  # blocks into the run at which the piece begins
    at = chains.run_at[run]
    at = np.where(at >= 0, at + into, -1)
    first_id = chains.run_first[run] + into.astype(np.uint64)
    listed = np.flatnonzero(at >= 0)
    first_id[listed] = chains.ids[at[listed]]
    tree = PrefixTree(
        block_size=block_size,
        parent=parent.astype(np.int32),
        depth=depth,
        scope=chains.run_scope[run],
        first_id=first_id,
        id_at=at,
        ids=chains.ids,
        scopes=scopes,
    )
    # A turn without a block of its own ends where it leaves its parent; an empty prompt ends nowhere.
    return tree, np.where(blocks > shared, last, leaf).astype(np.int32)
