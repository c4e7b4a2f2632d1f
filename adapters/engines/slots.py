"""Prefix cache of numbered slots: who holds which ids, which prefix a new prompt can reuse, who must go.

A slot is empty (holds nothing), idle (holds the KV of a closed sequence, a candidate for reuse and for
eviction) or open (pinned by a sequence). Pure bookkeeping: the caller does to the backend what `place` says.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.engine import NoCapacity, SeqId


@dataclass(slots=True)
class Slot:
    """`ids[:held]` have their KV here; an open slot's `ids` go on with what is known of its future."""

    index: int
    ids: array[int] = field(default_factory=lambda: array("i"))
    held: int = 0
    reserved: int = 0
    """Positions promised to an open sequence: its prompt at least, then what it holds."""
    seq: SeqId | None = None
    open: bool = False
    used_at: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a prompt goes: `slot` is to hold the first `cached` ids, copied from `copy_from` if that is
    given, else already there after a truncation to `cached`. `evicted` lists (sequence, length left,
    positions lost) of every cached sequence that loses positions to it, `cleared` the slots emptied."""

    slot: Slot
    cached: int
    copy_from: int | None
    evicted: tuple[tuple[SeqId, int, int], ...]
    cleared: tuple[int, ...]


def common_prefix(a: array[int], b: array[int], limit: int) -> int:
    """Length of the common prefix of `a` and `b`, looking at `limit` ids at most."""
    n = min(limit, len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    differ = np.frombuffer(a, np.int32, n) != np.frombuffer(b, np.int32, n)
    first = int(differ.argmax())
    return first if differ[first] else n


class SlotCache:
    """`n_slots` slots that together hold at most `capacity_tokens` positions."""

    def __init__(self, n_slots: int, capacity_tokens: int) -> None:
        self.slots = [Slot(i) for i in range(n_slots)]
        self.capacity_tokens = capacity_tokens
        self._clock = 0

    def held_tokens(self) -> int:
        return sum(s.held for s in self.slots)

    def place(self, seq: SeqId, ids: Sequence[int]) -> Placement:
        """Pin a slot for `seq`, with the longest held prefix of `ids` (at most len(ids) - 1 positions).

        A cached sequence that the prompt continues is taken over where it lies. A prefix that others may
        want again, or that is in use, is copied into an empty slot, else into the least recently used
        idle one; only when that is the prefix's own slot does its tail go. Raises NoCapacity, changing
        nothing."""
        prompt = array("i", ids)
        source, cached = self._longest_prefix(prompt)
        target = self._target(source, cached)
        in_place = source is target
        keep = {source.index} if source is not None else set()
        victims = self._victims(len(prompt), {target.index} | keep, freed=target.held)
        if victims is None and source is not None and not in_place and not source.open:
            # Without room for a copy beside its source, the source itself serves.
            target, in_place = source, True
            victims = self._victims(len(prompt), {target.index}, freed=target.held)
        if victims is None:
            raise NoCapacity(
                f"no room for a prompt of {len(prompt)} ids: {self._pinned()} of {self.capacity_tokens} "
                "positions are in use; close a sequence first"
            )
        evicted = [(self._name(v), 0, v.held) for v in victims]
        left = cached if in_place else 0
        if target.held > left:
            evicted.append((self._name(target), left, target.held - left))
        cleared = [v.index for v in victims]
        if not in_place and target.held:
            cleared.append(target.index)
        for victim in victims:
            self._empty(victim)
        self._clock += 1
        if source is not None:
            source.used_at = self._clock
        target.ids, target.held, target.reserved = prompt, cached, len(prompt)
        target.seq, target.open, target.used_at = seq, True, self._clock
        copy_from = source.index if source is not None and not in_place else None
        return Placement(target, cached, copy_from, tuple(evicted), tuple(cleared))

    def grow(self, slot: Slot, length: int) -> list[Slot] | None:
        """Make room for an open slot to hold `length` positions. Returns the idle slots emptied for it (with
        `held` still telling what they lost: call `release` on them), or None if there is no room."""
        if length <= slot.reserved:
            return []
        victims = self._victims(length, {slot.index}, freed=slot.reserved)
        if victims is not None:
            slot.reserved = length
        return victims

    def release(self, slot: Slot) -> None:
        """Forget what an idle slot holds."""
        self._empty(slot)

    def close(self, slot: Slot, *, keep: bool) -> int:
        """Unpin; returns the positions kept."""
        if not keep or slot.held == 0:
            self._empty(slot)
            return 0
        del slot.ids[slot.held :]
        self._clock += 1
        slot.open, slot.reserved, slot.used_at = False, 0, self._clock
        return slot.held

    def _longest_prefix(self, prompt: array[int]) -> tuple[Slot | None, int]:
        best: Slot | None = None
        longest = 0
        best_rank = (0, False, False)
        for slot in self.slots:
            n = common_prefix(slot.ids, prompt, min(slot.held, len(prompt) - 1))
            # Among equals, one that holds nothing more is taken over without a copy.
            rank = (n, not slot.open and slot.held == n, not slot.open)
            if n and rank > best_rank:
                best, longest, best_rank = slot, n, rank
        return best, longest

    def _target(self, source: Slot | None, cached: int) -> Slot:
        if source is not None and not source.open and source.held == cached:
            return source
        empty = next((s for s in self.slots if s.seq is None), None)
        if empty is not None:
            return empty
        idle = [s for s in self.slots if not s.open]
        if not idle:
            raise NoCapacity(f"all {len(self.slots)} sequences are open; close one first")
        return min(idle, key=lambda s: s.used_at)

    def _victims(self, length: int, spare: set[int], freed: int) -> list[Slot] | None:
        """Idle slots to empty, oldest first, so that `length` positions fit where `freed` ones were."""
        need = self._occupied() - freed + length - self.capacity_tokens
        victims: list[Slot] = []
        for slot in sorted((s for s in self.slots if not s.open and s.held), key=lambda s: s.used_at):
            if need <= 0:
                break
            if slot.index not in spare:
                victims.append(slot)
                need -= slot.held
        return victims if need <= 0 else None

    def _occupied(self) -> int:
        return sum(max(s.held, s.reserved) for s in self.slots)

    def _pinned(self) -> int:
        return sum(max(s.held, s.reserved) for s in self.slots if s.open)

    @staticmethod
    def _name(slot: Slot) -> SeqId:
        assert slot.seq is not None
        return slot.seq

    @staticmethod
    def _empty(slot: Slot) -> None:
        slot.ids, slot.held, slot.reserved = array("i"), 0, 0
        slot.seq, slot.open = None, False
