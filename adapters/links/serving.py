"""The agent's side of the conversation in `messages`."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, assert_never

from adapters.links.messages import (
    Applied,
    Apply,
    Hello,
    Refused,
    Reply,
    Request,
    Route,
    Routed,
    Sample,
    Sampled,
    decode_request,
    encode,
)
from harness.link import LinkError, LinkProfile, LinkSample

MAX_LINE_BYTES = 1 << 20


class Agent(Protocol):
    """What a driver does in its own process."""

    async def route(self, host: str, port: int) -> tuple[str, int]: ...

    async def apply(self, profile: LinkProfile) -> dict[str, str]:
        """Shape; answers the parameters in force."""
        ...

    async def sample(self) -> list[LinkSample]: ...


def say(reply: Reply) -> None:
    """One line to the runner. A runner that is gone is noticed by the end of the input instead."""
    line = memoryview(encode(reply) + b"\n")
    try:
        while line:
            line = line[os.write(1, line) :]
    except BrokenPipeError:
        return


async def requests_reader() -> asyncio.StreamReader:
    """The runner's lines; at end of file the runner is gone."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    stdin = os.fdopen(0, "rb", buffering=0, closefd=False)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    return reader


async def serve(agent: Agent, hello: Hello, reader: asyncio.StreamReader) -> None:
    """Answer until the input ends."""
    say(hello)
    while line := await reader.readline():
        try:
            reply = await _answer(agent, decode_request(line))
        except LinkError as error:
            reply = Refused(str(error))
        say(reply)


async def _answer(agent: Agent, request: Request) -> Reply:
    match request:
        case Route(host, port):
            return Routed(*await agent.route(host, port))
        case Apply(profile):
            return Applied(await agent.apply(profile))
        case Sample():
            return Sampled(await agent.sample())
    assert_never(request)
