"""Running counts of one load generator process: what a progress line, a master or a verdict needs."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.loadgen.histogram import Histogram

MAX_KINDS: Final = 20


class Tally(msgspec.Struct):
    """Sums since the start; mergeable over processes, a few kB however long the run."""

    planned_sessions: int = 0
    planned_requests: int = 0
    started_sessions: int = 0
    live_sessions: int = 0
    in_flight: int = 0
    sent: int = 0
    by_status: dict[str, int] = {}
    errors: dict[str, int] = {}
    output_tokens: int = 0
    prompt_tokens: int = 0
    events: int = 0
    token_events: int = 0
    merged_reads: int = 0
    late_merges: int = 0
    held: int = 0  # every-turn open loop: turns whose base answered after their instant
    ttft: Histogram = msgspec.field(default_factory=Histogram)
    lateness: Histogram = msgspec.field(default_factory=Histogram)
    e2e: Histogram = msgspec.field(default_factory=Histogram)
    # Only filled for the web interface: a histogram update per token has a price.
    itl: Histogram = msgspec.field(default_factory=Histogram)
    handoff_gap: Histogram = msgspec.field(default_factory=Histogram)

    @property
    def done(self) -> int:
        return sum(self.by_status.values())

    def count_end(self, status: str, error: str | None) -> None:
        self.by_status[status] = self.by_status.get(status, 0) + 1
        if error is not None and status != "cancelled":
            kind = error_kind(error)
            if kind not in self.errors and len(self.errors) >= MAX_KINDS:
                kind = "other"
            self.errors[kind] = self.errors.get(kind, 0) + 1

    def merge(self, other: Tally) -> None:
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            match mine:
                case Histogram():
                    mine.merge([theirs])
                case dict():
                    for key, count in theirs.items():
                        mine[key] = mine.get(key, 0) + count
                case _:
                    setattr(self, name, mine + theirs)


def error_kind(error: str) -> str:
    """The part of a request's error that many share: up to the first colon or figure."""
    head = error.partition(":")[0]
    if not head.startswith("HTTP"):
        words = []
        for word in head.split():
            if any(c.isdigit() for c in word):
                break
            words.append(word)
        head = " ".join(words).rstrip(",")
    return head[:60] or "error"
