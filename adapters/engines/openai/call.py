"""Completions of one server, streamed, from a thread of their own: engines are not asynchronous."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from harness.engine import EngineError

_CONNECT_S: Final = 10.0
_START_S: Final = 30.0
_SILENCE_S: Final = 120.0
"""A server that says nothing for so long has failed: its queue, or the prefill of a long prompt."""


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None
    """Whatever the server says of a failure."""


@dataclass(frozen=True, slots=True)
class Part:
    """What came of call `number`: token ids, and at its end why it ended, or why it failed."""

    number: int
    ids: Sequence[int] = ()
    finish: str | None = None
    error: str | None = None


class Caller:
    """Sends completions to `base_url`; their parts arrive in `parts`, in order within a call."""

    def __init__(self, base_url: str, model: str, api_key: str | None) -> None:
        self.url: Final = base_url.rstrip("/").removesuffix("/v1")
        self.parts: Final[queue.SimpleQueue[Part]] = queue.SimpleQueue()
        """Bounded by the calls under way: each has at most the tokens it asked for."""
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._loop = asyncio.new_event_loop()
        self._session: aiohttp.ClientSession | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai-calls", daemon=True)
        self._thread.start()

    def start(self, number: int, ids: Sequence[int], **fields: Any) -> None:
        """Begin call `number`: a completion of `ids` with these fields besides."""
        body = {
            "model": self._model,
            "prompt": list(ids),
            "stream": True,
            "temperature": 0.0,
            "ignore_eos": True,
            "return_token_ids": True,
            **fields,
        }
        self._loop.call_soon_threadsafe(self._begin, number, msgspec.json.encode(body))

    def cancel(self, number: int) -> None:
        """Hang up, which ends the work on the server. Parts may still be in the queue."""
        self._loop.call_soon_threadsafe(self._hang_up, number)

    def models(self) -> list[dict[str, Any]]:
        """What the server says it serves. Raises EngineError when it does not answer."""
        asked = asyncio.run_coroutine_threadsafe(self._models(), self._loop)
        try:
            return asked.result(_START_S)
        except TimeoutError:
            raise EngineError(f"{self.url}: did not say what it serves within {_START_S:g} s") from None

    def close(self) -> None:
        """Hang up on every call and end the thread. Idempotent."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._aclose(), self._loop).result(_CONNECT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CONNECT_S)
        self._loop.close()

    # ------------------------------------------------------------- on the loop

    def _begin(self, number: int, body: bytes) -> None:
        self._tasks[number] = self._loop.create_task(self._call(number, body))

    def _hang_up(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            task.cancel()

    async def _call(self, number: int, body: bytes) -> None:
        try:
            async for part in self._stream(number, body):
                self.parts.put(part)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, EngineError) as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            self.parts.put(Part(number, error=f"{self.url}: {why}"))
        finally:
            self._tasks.pop(number, None)

    async def _stream(self, number: int, body: bytes) -> AsyncIterator[Part]:
        headers = {**self._headers, "Content-Type": "application/json"}
        async with self._client().post(f"{self.url}/v1/completions", data=body, headers=headers) as response:
            if response.status != 200:
                text = (await response.text())[:300].replace("\n", " ")
                raise EngineError(f"HTTP {response.status}: {text}")
            async for event in _events(response):
                if event == b"[DONE]":
                    return
                chunk = self._decoder.decode(event)
                if chunk.error is not None:
                    raise EngineError(str(chunk.error)[:300])
                for choice in chunk.choices:
                    if choice.token_ids or choice.finish_reason:
                        yield Part(number, choice.token_ids or (), choice.finish_reason)
        raise EngineError("the stream ended before its end mark")

    async def _models(self) -> list[dict[str, Any]]:
        try:
            async with self._client().get(f"{self.url}/v1/models", headers=self._headers) as response:
                if response.status != 200:
                    raise EngineError(f"{self.url}/v1/models: HTTP {response.status}")
                served: list[dict[str, Any]] = (await response.json())["data"]
                return served
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            why = str(error) or type(error).__name__
            raise EngineError(f"{self.url}: no OpenAI-compatible server answers there: {why}") from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        return self._session

    async def _aclose(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Data of the server-sent events; lines of any length (some servers send the prompt's ids along)."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
