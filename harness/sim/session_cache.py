"""What one worker's prefix cache really holds: runs of tokens per session, least recently used first out.

A radix cache over sessions whose prompts continue one another. Content is known by lineage: the context
of turn i begins with a known number of tokens of its base's context (`common_tokens`), and sessions of
one group share a head. A session usually has one run; a context break or a subagent adds another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from harness.sim.session import Session, common_tokens, head_tokens

_MAX_RUNS: Final = 4
"""Branches kept a session; the oldest is dropped first."""


class _Run(msgspec.Struct, eq=False):
    turn: int
    held: int
    own: int
    """Tokens that no earlier run of the session (nor the group's head) accounts for."""


class _Entry(msgspec.Struct, eq=False):
    session: Session
    runs: list[_Run] = msgspec.field(default_factory=list)
    pins: int = 0


class SessionCache:
    """Cached tokens of one worker. `tokens` counts each held position once."""

    def __init__(self) -> None:
        self.tokens = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._heads: dict[str, int] = {}

    def pin(self, session: Session, turn: int, wanted: int) -> int:
        """Tokens of the turn's context already held, at most `wanted`; they stay until `unpin`."""
        hit = 0
        entry = self._entries.get(session.session_id)
        if entry is None:
            entry = self._entries[session.session_id] = _Entry(session)
        else:
            self._entries.move_to_end(session.session_id)
            it = session.turns[turn]
            reach = it.kept_tokens + it.base_output_tokens
            for run in reversed(entry.runs):  # the newest is nearly always the one that is continued
                overlap = common_tokens(session, turn, run.turn)
                if overlap > run.held:
                    overlap = run.held
                if overlap > hit:
                    hit = overlap
                    if hit >= reach:
                        break
        entry.pins += 1
        if session.shared_prefix is not None and hit < (
            known := self._heads.get(session.shared_prefix[0], 0)
        ):
            hit = max(hit, min(known, head_tokens(session, turn)))
        return min(hit, wanted)

    def unpin(self, session: Session) -> None:
        entry = self._entries[session.session_id]
        entry.pins -= 1
        if not entry.pins and not entry.runs:
            del self._entries[session.session_id]

    def keep(self, session: Session, turn: int, held: int) -> None:
        """The context of `turn` stays cached up to `held` tokens. The session must be pinned."""
        entry = self._entries[session.session_id]
        self._entries.move_to_end(session.session_id)
        best: _Run | None = None
        shared = 0
        it = session.turns[turn]
        reach = min(held, it.kept_tokens + it.base_output_tokens)
        for run in reversed(entry.runs):
            overlap = common_tokens(session, turn, run.turn)
            if overlap > run.held:
                overlap = run.held
            if overlap > shared:
                if overlap > held:
                    overlap = held
                best, shared = run, overlap
                if shared >= reach:
                    break
        if session.shared_prefix is not None and shared < session.shared_prefix[1]:
            head = self._learn_head(session.shared_prefix[0], min(head_tokens(session, turn), held))
            if head > shared:
                best, shared = None, head
        if best is not None and shared == best.held:
            best.own += held - shared
            best.turn, best.held = turn, held
            self.tokens += held - shared
            entry.runs.remove(best)
            entry.runs.append(best)
            return
        if best is not None and shared >= held:
            return  # inside a longer run already
        entry.runs.append(_Run(turn, held, held - shared))
        self.tokens += held - shared
        if len(entry.runs) > _MAX_RUNS:
            self._drop(entry, entry.runs[0])

    def forget(self, session: Session) -> None:
        """Nothing of the session stays (beyond what open sequences pin)."""
        entry = self._entries.get(session.session_id)
        if entry is None:
            return
        self.tokens -= sum(run.own for run in entry.runs)
        entry.runs.clear()
        if not entry.pins:
            del self._entries[session.session_id]

    def evict(self, wanted: int) -> list[tuple[str, int]]:
        """Free `wanted` tokens from the least recently used sessions: (session, tokens it still holds).

        Old branches go first, then the tail of the last run. Pinned sessions are passed over."""
        cut_down: list[tuple[str, int]] = []
        for session_id, entry in self._entries.items():
            if wanted <= 0:
                break
            if entry.pins:
                continue
            before = self.tokens
            while len(entry.runs) > 1 and before - self.tokens < wanted:
                self._drop(entry, entry.runs[0])
            run = entry.runs[0]
            cut = min(run.own, wanted - (before - self.tokens))
            if cut > 0:
                run.own -= cut
                run.held -= cut
                self.tokens -= cut
            wanted -= before - self.tokens
            cut_down.append((session_id, run.held if run.own else 0))
        for session_id, held in cut_down:
            if held == 0:
                del self._entries[session_id]
        return cut_down

    def held(self, session: Session) -> int:
        """Longest run of the session."""
        entry = self._entries.get(session.session_id)
        return max((run.held for run in entry.runs), default=0) if entry else 0

    def _drop(self, entry: _Entry, run: _Run) -> None:
        """Free a branch; what another branch shares with it is that one's own from now on."""
        entry.runs.remove(run)
        self.tokens -= run.own
        start = run.held - run.own
        heir, shared = None, start
        for other in entry.runs:
            if other.held - other.own > start:
                overlap = min(run.held, other.held, common_tokens(entry.session, run.turn, other.turn))
                if overlap > shared:
                    heir, shared = other, overlap
                    if shared == run.held:
                        break
        if heir is not None:
            inherited = min(shared, heir.held - heir.own) - start
            heir.own += inherited
            self.tokens += inherited

    def _learn_head(self, group: str, head: int) -> int:
        """The group's head is counted once, when its first session has it; then it stays."""
        known = self._heads.get(group, 0)
        if head > known:
            self._heads[group] = head
            self.tokens += head - known
        return head
