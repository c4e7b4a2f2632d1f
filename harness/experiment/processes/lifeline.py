"""The child's end: configuration from stdin, 'ready' on stdout, the end with stdin's end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")

# Exit code of a child that cannot work by its configuration: the user's to mend, not a failed run.
REFUSED: Final = 2


def read_config(kind: type[_T]) -> _T:
    """The first line of stdin."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)


def say_ready(**facts: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(facts) + b"\n")
    sys.stdout.buffer.flush()


async def until_told(failed: Awaitable[None] | None = None) -> None:
    """Return when stdin ends; raise what `failed` raises if that comes first."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    ended = asyncio.ensure_future(reader.read())
    waiting = {ended} if failed is None else {ended, asyncio.ensure_future(failed)}
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
