"""Turns a trace into a replay plan: what to keep of which prompt, what to append, what hit to expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.caches import lru_hits
from workloads.errors import TraceError
from workloads.plan_file import read_plan, shard_of, write_plan
from workloads.replay_plan import Piece, PlanHeader, ReplayPlan, ReplaySession, ReplayTurn
from workloads.spelling import Spelling, scope_key
from workloads.trace import Trace
from workloads.transform.scale import scale_time, scale_tokens
from workloads.transform.select import first_sessions, take_sessions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.vocabulary import Vocabulary

__all__ = [
    "Piece",
    "PlanHeader",
    "ReplayPlan",
    "ReplaySession",
    "ReplayTurn",
    "make_plan",
    "read_plan",
    "shard_of",
    "write_plan",
]


def make_plan(
    trace: Trace,
    *,
    vocabulary: Vocabulary,
    token_scale: float = 1.0,
    time_scale: float = 1.0,
    seed: int,
    salt: str = "",
    max_context_tokens: int | None = None,
    max_sessions: int | None = None,
    cache_tokens: int | None = None,
) -> ReplayPlan:
    """Plan the replay of a trace.

    token_scale, time_scale  factors on lengths and on times, on top of what the trace has had already
    seed, salt               key of the prompts' tokens; another salt gives other tokens in the same structure
    max_context_tokens       sessions with a prompt and answer above it are dropped whole, and counted
    max_sessions             the sessions that start first, after the drop
    cache_tokens             size of the prefix cache to expect hits of: least recently used, requests in the
                             order of their recorded sends; None: infinite
    """
    scaled = scale_time(scale_tokens(trace, token_scale), time_scale)
    empty = int((scaled.turns.output_tokens == 0).sum())
    if empty:
        raise TraceError(
            f"{empty} turns have an output of 0 tokens, which no engine can be asked for; repair it first",
            file=trace.header.name,
            field="output_tokens",
        )
    fitting, dropped_sessions, dropped_turns = _fitting(scaled, max_context_tokens)
    if max_sessions is not None and max_sessions < len(fitting.session_ids):
        if max_sessions < 1:
            raise TraceError("must be 1 or more", field="max_sessions", value=max_sessions)
        fitting = first_sessions(fitting, max_sessions)
    columns = _Columns(fitting, cache_tokens)
    sessions = _Planner(
        fitting, columns, Spelling(vocabulary, fitting.header.block_size), seed, salt
    ).sessions()
    header = PlanHeader(
        trace=fitting.header.name,
        trace_format=fitting.header.format,
        digest=fitting.header.digest,
        block_size=fitting.header.block_size,
        vocabulary=vocabulary,
        seed=seed,
        salt=salt,
        token_scale=fitting.header.token_scale,
        time_scale=fitting.header.time_scale,
        gap_cap_ns=fitting.header.gap_cap_ns,
        sessions=len(sessions),
        turns=len(fitting),
        dropped_sessions=dropped_sessions,
        dropped_turns=dropped_turns,
        max_context_tokens=max_context_tokens,
        cache_tokens=cache_tokens,
        prefix_known=fitting.header.prefix_known,
        expected_request_hit=columns.request_hit if fitting.header.prefix_known else None,
        expected_token_hit=columns.token_hit if fitting.header.prefix_known else None,
        warnings=fitting.header.warnings,
    )
    return ReplayPlan(header, sessions)


def _fitting(trace: Trace, limit: int | None) -> tuple[Trace, int, int]:
    """The sessions that fit the context, and how many sessions and turns do not."""
    if limit is None:
        return trace, 0, 0
    over = trace.turns.input_tokens + trace.turns.output_tokens > limit
    bad = np.add.reduceat(over, trace.turn_start[:-1]) > 0
    if not bad.any():
        return trace, 0, 0
    if bad.all():
        longest = int((trace.turns.input_tokens + trace.turns.output_tokens).min())
        raise TraceError(
            f"no session fits {limit} tokens of context; the shortest request alone needs {longest}: "
            "scale the lengths down or allow more",
            file=trace.header.name,
            field="max_context_tokens",
        )
    turns = int(np.diff(trace.turn_start)[bad].sum())
    kept = take_sessions(trace, np.flatnonzero(~bad))
    line = f"{int(bad.sum())} sessions ({turns} turns) dropped: longer than {limit} tokens of context"
    return kept.warned(line), int(bad.sum()), turns


class _Columns:
    """What each turn keeps, appends and is expected to hit, as columns."""

    def __init__(self, trace: Trace, cache_tokens: int | None) -> None:
        t, tree, size = trace.turns, trace.tree, trace.header.block_size
        base = _reachable(trace)
        told = base >= 0
        safe = np.where(told, base, 0)
        common = np.where(told, tree.common_depth(np.where(told, t.node[safe], -1), t.node), 0)
        base_input, base_output = t.input_tokens[safe], t.output_tokens[safe]
        whole_blocks = base_input // size
        told &= (common > 0) | (whole_blocks == 0)
        whole = told & (common >= whole_blocks) & (base_input <= t.input_tokens)
        self.keeps_answer = whole & (t.input_tokens - base_input - base_output >= 1)
        partly = np.minimum(common * size, np.minimum(base_input, t.input_tokens))
        self.kept = np.where(whole, base_input, np.where(told, partly, 0))
        told &= self.kept > 0
        self.base = np.where(told, base, -1)
        self.answer = np.where(self.keeps_answer, base_output, 0)
        self.new = t.input_tokens - self.kept - self.answer
        faithful = _faithful(self.base, t.input_tokens, whole, self.kept, whole_blocks * size)
        seen = tree.seen_depth(tree.climb(t.node, -(-faithful // size)), trace.send_rank())
        root_hit = np.minimum(trace.hit_tokens(seen), faithful)
        self.expected = np.where(told, self.kept, root_hit)
        if cache_tokens is not None:
            held = lru_hits(trace, cache_tokens // size)
            evicted = held < np.maximum(common, seen)
            self.expected = np.where(
                evicted, np.minimum(self.expected, trace.hit_tokens(held)), self.expected
            )
        self.request_hit = float((self.expected / t.input_tokens).mean())
        self.token_hit = float(self.expected.sum() / t.input_tokens.sum())


def _reachable(trace: Trace) -> NDArray[np.int64]:
    """Global index of each turn's base, -1 where the base is not sure to have ended before."""
    base = trace.base_turn
    t = trace.turns
    first = np.repeat(trace.turn_start[:-1], np.diff(trace.turn_start))
    direct = np.zeros(len(t), bool)
    owner = np.repeat(np.arange(len(t)), np.diff(t.after_start))
    direct[owner[(first[owner] + t.after) == base[owner]]] = True
    for turn in np.flatnonzero((base >= 0) & ~direct):
        if not _waits_for(trace, int(turn), int(base[turn]), int(first[turn])):
            base[turn] = -1
    return base


def _waits_for(trace: Trace, turn: int, base: int, first: int) -> bool:
    """Whether `base` lies among the turns that `turn` waits for, directly or through others."""
    t = trace.turns
    open_ends = [turn]
    seen: set[int] = set()
    while open_ends:
        here = open_ends.pop()
        for a in t.after[t.after_start[here] : t.after_start[here + 1]]:
            earlier = first + int(a)
            if earlier == base:
                return True
            if earlier > base and earlier not in seen:
                seen.add(earlier)
                open_ends.append(earlier)
    return False


def _faithful(
    base: NDArray[np.int64],
    tokens: NDArray[np.int64],
    whole: NDArray[np.bool_],
    kept: NDArray[np.int64],
    base_blocks: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Leading tokens of each live prompt that are spelled from the trace's blocks alone.

    Behind a live answer the replay's prompts hold other tokens than the trace's, so only this part can
    be the prefix of another session's prompt.
    """
    out = tokens.tolist()
    for turn, (b, w, k, blocks) in enumerate(
        zip(base.tolist(), whole.tolist(), kept.tolist(), base_blocks.tolist(), strict=True)
    ):
        if b < 0:
            continue
        if w:
            out[turn] = min(out[b], blocks)
        elif out[b] < k:
            out[turn] = out[b]
    return np.array(out, np.int64)


class _Planner:
    """Makes the plan's objects from the columns."""

    def __init__(self, trace: Trace, columns: _Columns, spelling: Spelling, seed: int, salt: str) -> None:
        self.trace = trace
        self.columns = columns
        self.spelling = spelling
        self.seed = seed
        self.salt = salt
        self.starts = trace.tree.start().tolist()
        self.depths = trace.tree.depth.tolist()
        self.parents = trace.tree.parent.tolist()
        self.keys: dict[int, int] = {}

    def sessions(self) -> tuple[ReplaySession, ...]:
        order = np.argsort(self.trace.session_start_ns, kind="stable")
        return tuple(self._session(int(s)) for s in order)

    def _session(self, s: int) -> ReplaySession:
        lo, hi = int(self.trace.turn_start[s]), int(self.trace.turn_start[s + 1])
        name = self.trace.session_ids[s]
        tail_key = scope_key(self.seed, self.salt, f"tail {name}")
        return ReplaySession(
            session_id=name,
            start_ns=int(self.trace.session_start_ns[s]),
            turns=tuple(self._turn(lo, i, tail_key) for i in range(lo, hi)),
            shared_prefix=self._shared(lo),
        )

    def _turn(self, lo: int, i: int, tail_key: int) -> ReplayTurn:
        t, c = self.trace.turns, self.columns
        base = int(c.base[i])
        arrival = int(t.arrival_ns[i])
        tenant = int(t.tenant[i])
        begins = int(c.kept[i] + c.answer[i])
        pieces, skip = self._pieces(int(t.node[i]), begins, int(t.input_tokens[i]), tail_key, i - lo)
        return ReplayTurn(
            turn=i - lo,
            after=tuple(t.after[t.after_start[i] : t.after_start[i + 1]].tolist()),
            delay_ns=int(t.delay_ns[i]),
            arrival_ns=arrival if arrival >= 0 else None,
            base=base - lo if base >= 0 else None,
            kept_tokens=int(c.kept[i]),
            keeps_answer=bool(c.keeps_answer[i]),
            base_output_tokens=int(c.answer[i]),
            new_tokens=int(c.new[i]),
            output_tokens=int(t.output_tokens[i]),
            expected_hit_tokens=int(c.expected[i]),
            tenant=self.trace.tenants[tenant] if tenant >= 0 else None,
            priority=int(t.priority[i]),
            skip_tokens=skip,
            pieces=pieces,
            spelling=self.spelling,
        )

    def _pieces(
        self, node: int, begins: int, ends: int, tail_key: int, turn: int
    ) -> tuple[tuple[Piece, ...], int]:
        """Runs of blocks that hold tokens begins..ends of the prompt, and what to skip of the first."""
        size = self.spelling.block_size
        from_block, to_block = begins // size, -(-ends // size)
        if begins >= ends:
            return (), 0
        pieces: list[Piece] = []
        depth = self.depths[node] if node >= 0 else 0
        if to_block > depth:
            at = max(depth, from_block)
            pieces.append(Piece(tail_key, (turn << 32) + at, to_block - at))
        while node >= 0 and self.depths[node] > from_block:
            at = max(self.starts[node], from_block)
            if self.depths[node] > at:
                pieces.append(self._piece(node, at - self.starts[node]))
            node = self.parents[node]
        pieces.reverse()
        return tuple(pieces), begins - from_block * size

    def _piece(self, node: int, offset: int) -> Piece:
        tree = self.trace.tree
        blocks = self.depths[node] - self.starts[node] - offset
        at = int(tree.id_at[node])
        key = self._key(int(tree.scope[node]))
        if at >= 0:
            ids = tree.ids[at + offset : at + offset + blocks]
            return Piece(key, int(ids[0]), blocks, tuple(ids.tolist()))
        return Piece(key, int(tree.first_id[node]) + offset, blocks)

    def _key(self, scope: int) -> int:
        if scope not in self.keys:
            self.keys[scope] = scope_key(self.seed, self.salt, self.trace.tree.scopes[scope])
        return self.keys[scope]

    def _shared(self, first_turn: int) -> tuple[str, int] | None:
        """The head that the session's first prompt has in common with others, by its scope's name."""
        tokens = int(self.trace.turns.shared_tokens[first_turn])
        path = self.trace.tree.path(int(self.trace.turns.node[first_turn]))
        if not tokens or not path:
            return None
        name = self.trace.tree.scopes[self.trace.tree.scope[path[0]]]
        return (name, tokens) if name.startswith("head ") else None
