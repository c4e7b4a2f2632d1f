"""What master and workers say to each other besides Locust's own messages; each is one msgpack struct.

A plan travels in pieces, acknowledged one by one: Locust's socket has no flow control of its own, and one
large message would block the heartbeats behind it.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from harness.loadgen.job import JobError

PIECE_BYTES: Final = 256 << 10
WINDOW_PIECES: Final = 8
MAX_PLAN_BYTES: Final = 4 << 30

CLOCK: Final = "pddbench.clock"
CLOCK_ANSWER: Final = "pddbench.clock_answer"
ASSIGN: Final = "pddbench.assign"
PLAN: Final = "pddbench.plan"
PLAN_TAKEN: Final = "pddbench.plan_taken"
STAGED: Final = "pddbench.staged"
START: Final = "pddbench.start"
STOP: Final = "pddbench.stop"
TALLY: Final = "pddbench.tally"
DONE: Final = "pddbench.done"
FAILED: Final = "pddbench.failed"
REFUSED: Final = "pddbench.refused"
LEAVE: Final = "pddbench.leave"


class Clock(msgspec.Struct, frozen=True):
    """The master's clock when it asked."""

    asked_ns: int


class ClockAnswer(msgspec.Struct, frozen=True):
    """The same, and the worker's clock when it answered; epoch ns both."""

    asked_ns: int
    worker_ns: int


class Assign(msgspec.Struct, frozen=True):
    """A worker's part: the job, and the plan of its sessions that follows in pieces."""

    job: bytes
    shard: str
    live_sessions: int | None
    warmup_sessions: int
    plan_pieces: int
    plan_sha256: str
    clock_offset_ns: int  # worker's clock minus master's
    clock_error_ns: int


class PlanPiece(msgspec.Struct, frozen=True):
    index: int
    data: bytes


class PlanTaken(msgspec.Struct, frozen=True):
    index: int


class Staged(msgspec.Struct, frozen=True):
    """The worker could start now; its process id tells a local worker's death at once."""

    pid: int


class Start(msgspec.Struct, frozen=True):
    """The schedule's zero on the worker's own clock, epoch ns; Locust's spawn message follows."""

    t0_ns: int


class Stop(msgspec.Struct, frozen=True):
    """Drain; with `cut`, give up what is on the wire."""

    cut: bool


class TallyReport(msgspec.Struct, frozen=True):
    """Sums so far, msgpack of a Tally; a few kB."""

    tally: bytes
    stopping: bool


class Done(msgspec.Struct, frozen=True):
    """The worker's records are on its disk."""

    assessment: bytes
    tally: bytes
    folder: str


class WorkerFailed(msgspec.Struct, frozen=True):
    """The worker cannot go on; one line."""

    message: str


class Refused(msgspec.Struct, frozen=True):
    """The master does not take this worker; one line."""

    message: str


class Leave(msgspec.Struct, frozen=True):
    """The master has the worker's last word."""


M = TypeVar("M", bound=msgspec.Struct)


def pack(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(message)


def unpack(data: Any, kind: type[M]) -> M:
    """Raises JobError when the other end speaks another version."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, TypeError) as error:
        raise JobError(
            f"{kind.__name__} message: {error}; master and workers must run the same version"
        ) from None
