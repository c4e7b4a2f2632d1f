"""Builds a PrefixTree from block-id lists, or from "keeps so many blocks of that prompt and adds so many".

A radix tree that grows one prompt at a time. Agentic prompts extend the one before, so the walk starts
where the last prompt of the scope stopped matching instead of at the root: one array comparison a prompt.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.prefix_tree import NO_NODE, PrefixTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_GROW: Final = 1 << 16


class TreeBuilder:
    """Mutable radix tree; `freeze` gives the columns and the new index of every node."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._parent = array("q")
        self._start = array("q")
        self._end = array("q")
        self._scope = array("q")
        self._first = array("Q")
        self._at = array("q")
        self._owner = array("q")
        self._ids: NDArray[np.uint64] = np.zeros(_GROW, np.uint64)
        self._used = 0
        self._scopes: dict[str, int] = {"": 0}
        self._fresh: dict[int, int] = {}
        self._children: dict[int, dict[tuple[int, int], int]] = {}
        self._last: dict[int, tuple[NDArray[np.uint64], int]] = {}

    def scope(self, name: str) -> int:
        """Index of a scope of ids; '' is the global one."""
        return self._scopes.setdefault(name, len(self._scopes))

    def close_scope(self, scope: int) -> None:
        """No further prompt of this scope comes: forget what only matching needs."""
        self._children.pop(scope, None)
        self._last.pop(scope, None)

    def insert(self, scope: int, ids: NDArray[np.uint64], owner: int) -> int:
        """Node at which the prompt with these block ids ends (-1 for an empty one).

        `owner` is remembered on the nodes that this prompt is the first to pass.
        """
        count = len(ids)
        if count == 0:
            return NO_NODE
        node, k = self._resume(scope, ids)
        children = self._children.setdefault(scope, {})
        while k < count:
            child = children.get((node, int(ids[k])))
            if child is None:
                node, k = self._leaf(scope, node, k, ids, owner), count
                break
            matched = self._match(child, ids, k)
            if k + matched < self._end[child]:
                child = self._split(child, k + matched)
            node, k = child, k + matched
        self._last[scope] = (ids, node)
        return node

    def extend(self, scope: int, node: int, *, kept: int, fresh: int, owner: int) -> int:
        """Node of a prompt that keeps `kept` blocks of the path to `node` and adds `fresh` new ones.

        The new blocks get ids of their own, counted up in the scope: use a scope for this or for
        `insert`, never for both.
        """
        while node >= 0 and self._start[node] >= kept:
            node = self._parent[node]
        if node >= 0 and self._end[node] > kept:
            node = self._split(node, kept)
        if fresh == 0:
            return node
        first = self._fresh.get(scope, 0)
        self._fresh[scope] = first + fresh
        return self._add(scope, node, start=kept, end=kept + fresh, first=first, at=-1, owner=owner)

    def depth(self, node: int) -> int:
        """Blocks on the path to `node`."""
        return 0 if node < 0 else self._end[node]

    def parent(self, node: int) -> int:
        """Parent of a node, -1 at the root."""
        return self._parent[node]

    def owner(self, node: int) -> int:
        """Who was first to pass a node."""
        return self._owner[node]

    def common_depth(self, left: int, right: int) -> int:
        """Blocks that the paths to two nodes share."""
        while left != right and left >= 0 and right >= 0:
            if self._end[left] >= self._end[right]:
                left = self._parent[left]
            else:
                right = self._parent[right]
        return self.depth(left) if left == right else 0

    def most_shared(self, earlier: Sequence[int], node: int) -> int | None:
        """Which of the `earlier` prompts shares most with `node`, the latest of equals; None: no block.

        The last one is the usual answer: others are looked at only where it shares less than half of itself.
        """
        best, best_depth = len(earlier) - 1, self.common_depth(earlier[-1], node)
        if 2 * best_depth < self.depth(earlier[-1]):
            for at in range(len(earlier) - 2, -1, -1):
                depth = self.common_depth(earlier[at], node)
                if depth > best_depth:
                    best, best_depth = at, depth
        return best if best_depth else None

    def freeze(self) -> tuple[PrefixTree, NDArray[np.int64]]:
        """The tree, and where each builder's node index went in it (int64, one per node)."""
        parent = np.frombuffer(self._parent, np.int64) if self._parent else np.zeros(0, np.int64)
        end = np.array(self._end, np.int64)
        order = np.argsort(end, kind="stable")  # a parent always ends before its child
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        parent = parent[order]
        first, at, ids = self._compressed(order)
        tree = PrefixTree(
            block_size=self.block_size,
            parent=np.where(parent >= 0, place[parent], NO_NODE).astype(np.int32),
            depth=end[order],
            scope=np.array(self._scope, np.int32)[order],
            first_id=first,
            id_at=at,
            ids=ids,
            scopes=tuple(self._scopes),
        )
        return tree, place

    def _compressed(
        self, order: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64]]:
        """Ids of the nodes in `order`: runs that count up need no stored ids."""
        first = np.array(self._first, np.uint64)[order]
        at = np.array(self._at, np.int64)[order]
        length = (np.array(self._end, np.int64) - np.array(self._start, np.int64))[order]
        ids = self._ids[: self._used]
        breaks = np.zeros(self._used + 1, np.int64)
        if self._used > 1:
            np.cumsum(ids[1:] - ids[:-1] != 1, out=breaks[1:-1])
            breaks[-1] = breaks[-2]
        stored = at >= 0
        first[stored] = ids[at[stored]]
        counting = np.zeros(len(at), bool)
        counting[stored] = breaks[at[stored] + length[stored] - 1] == breaks[at[stored]]
        at[counting] = -1
        keep = np.flatnonzero(at >= 0)
        if not len(keep):
            return first, at, np.zeros(0, np.uint64)
        sizes = length[keep]
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        take = np.repeat(at[keep] - starts, sizes) + np.arange(int(sizes.sum()))
        at[keep] = starts
        return first, at, ids[take]

    def _resume(self, scope: int, ids: NDArray[np.uint64]) -> tuple[int, int]:
        """Node and number of blocks that this prompt shares with the scope's last one."""
        last = self._last.get(scope)
        if last is None:
            return NO_NODE, 0
        before, node = last
        k = _common(before, ids)
        if k == 0:
            return NO_NODE, 0
        while self._start[node] >= k:
            node = self._parent[node]
        if self._end[node] > k:
            node = self._split(node, k)
        return node, k

    def _match(self, child: int, ids: NDArray[np.uint64], k: int) -> int:
        length = min(self._end[child] - self._start[child], len(ids) - k)
        at = self._at[child]
        return _common(self._ids[at : at + length], ids[k : k + length])

    def _leaf(self, scope: int, node: int, k: int, ids: NDArray[np.uint64], owner: int) -> int:
        count = len(ids) - k
        if self._used + count > len(self._ids):
            grown = np.zeros(max(2 * len(self._ids), self._used + count), np.uint64)
            grown[: self._used] = self._ids[: self._used]
            self._ids = grown
        self._ids[self._used : self._used + count] = ids[k:]
        leaf = self._add(scope, node, start=k, end=len(ids), first=int(ids[k]), at=self._used, owner=owner)
        self._children[scope][node, int(ids[k])] = leaf
        self._used += count
        return leaf

    def _add(self, scope: int, parent: int, *, start: int, end: int, first: int, at: int, owner: int) -> int:
        self._parent.append(parent)
        self._start.append(start)
        self._end.append(end)
        self._scope.append(scope)
        self._first.append(first)
        self._at.append(at)
        self._owner.append(owner)
        return len(self._parent) - 1

    def _split(self, node: int, depth: int) -> int:
        """Cut a run so that a node ends at `depth`; the old index keeps the lower part and its children."""
        start = self._start[node]
        scope, first, at = self._scope[node], self._first[node], self._at[node]
        upper = self._add(
            scope, self._parent[node], start=start, end=depth, first=first, at=at, owner=self._owner[node]
        )
        self._parent[node] = upper
        self._start[node] = depth
        if at >= 0:
            self._at[node] = at + depth - start
            self._first[node] = int(self._ids[at + depth - start])
            children = self._children.get(scope)
            if children is not None:
                children[self._parent[upper], first] = upper
                children[upper, self._first[node]] = node
        else:
            self._first[node] = first + depth - start
        return upper


def _common(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> int:
    """Length of the common prefix."""
    length = min(len(left), len(right))
    unequal = left[:length] != right[:length]
    where = int(unequal.argmax()) if length else 0
    return where if length and unequal[where] else length
