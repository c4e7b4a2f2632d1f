"""Known defects of a trace: not wrong enough to refuse reading it, too wrong to replay it unmended."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.prefix_tree import PrefixTree
    from workloads.trace import Trace

_FORK_TURNS: Final = 3


class DefectKind(enum.StrEnum):
    """What can be the matter with a trace."""

    FORK_DUPLICATE = "fork_duplicate"
    ZERO_OUTPUT = "zero_output"
    REUSED_ID = "reused_id"


class Defect(msgspec.Struct, frozen=True):
    """One kind of defect: how many sessions, turns or ids have it, and an example."""

    kind: DefectKind
    count: int
    of: str
    example: str


def defects(trace: Trace) -> tuple[Defect, ...]:
    """Every kind that the trace has."""
    found = (_zero_outputs(trace), _forks(trace), _reused_ids(trace))
    return tuple(d for d in found if d is not None)


def fork_duplicates(trace: Trace) -> NDArray[np.int64]:
    """Sessions that begin as a longer one does, turn for turn: the copies a fork of a conversation leaves.

    Equal means the same input, output, service time and wait in the first three turns. Counted as sessions
    of their own they would weigh one conversation many times.
    """
    counts = np.diff(trace.turn_start)
    if not trace.header.sessions_known or trace.header.copies > 1:
        return np.zeros(0, np.int64)
    t = trace.turns
    long = np.flatnonzero(counts >= _FORK_TURNS)
    rows = trace.turn_start[:-1][long][:, None] + np.arange(_FORK_TURNS)
    columns = (t.input_tokens, t.output_tokens, t.service_ns, t.delay_ns)
    print_of = np.concatenate([column[rows] for column in columns], axis=1)
    by_length = np.argsort(-counts[long], kind="stable")
    _, original = np.unique(print_of[by_length], axis=0, return_index=True)
    kept = np.zeros(len(long), bool)
    kept[by_length[original]] = True
    return long[~kept]


def _forks(trace: Trace) -> Defect | None:
    twins = fork_duplicates(trace)
    if not len(twins):
        return None
    return Defect(DefectKind.FORK_DUPLICATE, len(twins), "sessions", trace.session_ids[twins[0]])


def _zero_outputs(trace: Trace) -> Defect | None:
    empty = np.flatnonzero(trace.turns.output_tokens == 0)
    if not len(empty):
        return None
    session = int(np.searchsorted(trace.turn_start, empty[0], side="right")) - 1
    where = f"{trace.session_ids[session]}, turn {int(empty[0] - trace.turn_start[session])}"
    return Defect(DefectKind.ZERO_OUTPUT, len(empty), "turns", where)


def _reused_ids(trace: Trace) -> Defect | None:
    """Ids that stand after more than one prefix: such ids do not hash their prefix, as they should."""
    tree = trace.tree
    if tree.block_size == 1:
        return None  # tokens come back by nature; only blocks are told by hashes of their prefix
    scope, first, end = _runs(tree)
    order = np.lexsort((first, scope))
    scope, first, end = scope[order], first[order], end[order]
    if not len(scope):
        return None
    group = np.cumsum(np.concatenate(([True], scope[1:] != scope[:-1])))
    # Ends as ranks, so that one running maximum serves all scopes: a later scope's are all above.
    rank = np.empty(len(end), np.int64)
    rank[np.lexsort((end, group))] = np.arange(len(end))
    reach = np.maximum.accumulate(rank)
    by_rank = np.empty(len(end), np.uint64)
    by_rank[rank] = end
    overlaps = (group[1:] == group[:-1]) & (first[1:] < by_rank[reach[:-1]])
    count = int(overlaps.sum())
    if not count:
        return None
    at = int(np.flatnonzero(overlaps)[0]) + 1
    name = tree.scopes[scope[at]]
    return Defect(
        DefectKind.REUSED_ID, count, "runs of ids", f"id {first[at]}" + (f" of {name}" if name else "")
    )


def _runs(tree: PrefixTree) -> tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.uint64]]:
    """Scope, first id and end of every run of ids that count up; listed ids are runs of one."""
    length = tree.depth - tree.start()
    counting = (tree.id_at < 0) & (length > 0)
    listed = np.flatnonzero(tree.id_at >= 0)
    sizes = length[listed]
    offset = np.cumsum(sizes) - sizes
    take = np.repeat(tree.id_at[listed] - offset, sizes) + np.arange(int(sizes.sum()))
    ids = tree.ids[take]
    scope = np.concatenate((tree.scope[counting], np.repeat(tree.scope[listed], sizes)))
    first = np.concatenate((tree.first_id[counting], ids))
    end = np.concatenate((tree.first_id[counting] + length[counting].astype(np.uint64), ids + np.uint64(1)))
    return scope, first, end
