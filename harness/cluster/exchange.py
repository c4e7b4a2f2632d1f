"""One client request at the router: its context ids, and the stream to the client."""

from __future__ import annotations

import asyncio
from array import array
from typing import TypeAlias

import msgspec

from harness.cluster.messages import Sampling
from harness.policy.journal import Row


class Tokens(msgspec.Struct, frozen=True):
    ids: array[int]


class End(msgspec.Struct, frozen=True):
    """The answer is complete; `times` is what the router knows of the request by then."""

    reason: str
    times: Row


class Failure(msgspec.Struct, frozen=True):
    error: str


Part: TypeAlias = Tokens | End | Failure


class Exchange:
    """Context grows as tokens are emitted; parts are read by the HTTP handler.

    The queue is bounded by the answer itself: at most max_tokens parts and one end."""

    def __init__(self, session: str, prompt: array[int], sampling: Sampling) -> None:
        self.session = session
        self.prompt_tokens = len(prompt)
        self.context = array("I", prompt)
        self.sampling = sampling
        self.ended = False
        self.parts: asyncio.Queue[Part] = asyncio.Queue(sampling.max_tokens + 1)

    def emit(self, ids: array[int]) -> None:
        self.context.extend(ids)
        self.parts.put_nowait(Tokens(ids))

    def end(self, part: End | Failure) -> None:
        if not self.ended:
            self.ended = True
            self.parts.put_nowait(part)
