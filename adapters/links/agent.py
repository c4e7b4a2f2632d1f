"""A link whose work is done by a process of its own, the agent: every driver is one of these.

The agent undoes everything when its input ends, so closing (or dying) is enough to leave nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import msgspec

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
    decode_reply,
    encode,
)
from harness.link import Cluster, LinkDescription, LinkError, LinkProfile, LinkSample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ANSWER_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 10.0


class AgentLink:
    """`harness.link.Link` over an agent process. Made by `open`."""

    def __init__(self, process: asyncio.subprocess.Process, hello: Hello, log: Path) -> None:
        self._process = process
        self._hello = hello
        self._log = log
        self._turn = asyncio.Lock()
        self._closed = False
        self.description: LinkDescription = hello.description
        self.processes: Mapping[str, int] = hello.processes

    @classmethod
    async def open(cls, module: str, *arguments: str, log: Path, start_timeout_s: float) -> AgentLink:
        """Start `python -m module arguments`; LinkError when it cannot bring its link up."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=1 << 20,
                # Ctrl-C on the terminal is for the runner, which then closes its links in order.
                start_new_session=True,
            )
        try:
            hello = await asyncio.wait_for(_read(process, log), start_timeout_s)
        except TimeoutError:
            await _end(process)
            raise LinkError(f"{module} was not up after {start_timeout_s:g} s; see {log}") from None
        except BaseException:
            await asyncio.shield(_end(process))
            raise
        assert isinstance(hello, Hello), hello
        return cls(process, hello, log)

    def host(self, cluster: Cluster) -> str:
        return self._hello.hosts[cluster]

    def command_prefix(self, cluster: Cluster) -> Sequence[str]:
        return self._hello.prefixes[cluster]

    async def route(self, host: str, port: int) -> tuple[str, int]:
        reply = await self._ask(Route(host, port))
        assert isinstance(reply, Routed), reply
        return reply.host, reply.port

    async def apply(self, profile: LinkProfile) -> None:
        reply = await self._ask(Apply(profile))
        assert isinstance(reply, Applied), reply
        self.description = msgspec.structs.replace(
            self.description, details={**self.description.details, **reply.details}
        )

    async def sample(self) -> Sequence[LinkSample]:
        reply = await self._ask(Sample())
        assert isinstance(reply, Sampled), reply
        return reply.samples

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.shield(_end(self._process))

    async def _ask(self, request: Request) -> Reply:
        # A cancelled question would leave its answer in the pipe for the next one: once asked, it is read.
        return await asyncio.shield(self._exchange(request))

    async def _exchange(self, request: Request) -> Reply:
        name = type(request).__name__.lower()
        async with self._turn:
            if self._closed:
                raise LinkError(f"{name}: the link is closed")
            assert self._process.stdin is not None
            self._process.stdin.write(encode(request) + b"\n")
            try:
                reply = await asyncio.wait_for(_read(self._process, self._log), ANSWER_TIMEOUT_S)
            except TimeoutError:
                # Its answer may still come: what follows could not be told apart from it.
                self._closed = True
                await _end(self._process)
                raise LinkError(f"{name}: no answer in {ANSWER_TIMEOUT_S:g} s; see {self._log}") from None
        return reply


async def _read(process: asyncio.subprocess.Process, log: Path) -> Reply:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        code = await process.wait()
        raise LinkError(f"the link's process ended (exit status {code}){_last_line(log)}; see {log}")
    reply = decode_reply(line)
    if isinstance(reply, Refused):
        raise LinkError(reply.error)
    return reply


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End of input asks the agent to undo everything; past the time limit its whole group is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), CLOSE_TIMEOUT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
