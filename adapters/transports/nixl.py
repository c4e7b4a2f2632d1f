"""NIXL: the receiver reads the sender's memory through UCX.

vLLM's own NIXL connector is not used. It takes over the whole question of what moves, and answers it in two
ways that PDD cannot have: of a context of prompt and relayed ids it claims all as computed elsewhere, which
gives wrong tokens; and it lets a producer's blocks go after the first of two readers. Here NIXL only moves
bytes: what is offered is an exported range, and each reader has an offer of its own.

Blobs lie in an arena registered once, so that what a peer has to know of this agent never changes. UCX is
held to TCP: by itself it would take shared memory between two workers of one machine, and cross no link.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from importlib import metadata
from typing import Any, Final

import msgspec
import numpy as np

from adapters.transports.arena import Arena
from harness.kv_transport import KvTransport, TransportError

WANTED: Final = "1.5.1"
_ARENA_BYTES: Final = 256 << 20
_POLL_S: Final = 0.001
_MEMORY: Final = "DRAM"


class _Ticket(msgspec.Struct, frozen=True, array_like=True):
    agent: bytes
    """What a peer must know to reach the agent: NIXL's own serialised metadata."""
    address: int
    size: int


_decoder = msgspec.msgpack.Decoder(_Ticket)


def load(worker: str) -> KvTransport:
    """See `adapters.transports.load_transport`."""
    try:
        found = metadata.version("nixl-cu12")
    except metadata.PackageNotFoundError:
        found = "none"
    if found != WANTED:
        raise TransportError(
            f"transport 'nixl' needs nixl-cu12 {WANTED}, found {found}: run `make vllm`, then use "
            ".venv-vllm/bin/pddbench"
        )
    os.environ["UCX_TLS"] = "tcp"
    os.environ.setdefault("UCX_LOG_LEVEL", "error")
    os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
    from nixl_cu12._api import nixl_agent, nixl_agent_config  # noqa: PLC0415 - loads UCX, which reads that

    agent = nixl_agent(f"{worker}-{uuid.uuid4().hex}", nixl_agent_config(backends=["UCX"]))
    return NixlTransport(agent, _ARENA_BYTES)


class NixlTransport:
    """See `harness.kv_transport.KvTransport`."""

    def __init__(self, agent: Any, arena_bytes: int) -> None:
        self._agent = agent
        self._arena = Arena(arena_bytes)
        self._freed = asyncio.Event()
        self._memory = np.zeros(arena_bytes, np.uint8)
        self._registered = self._register(self._memory)
        self._metadata: bytes = agent.get_agent_metadata()
        self._peers: dict[bytes, str] = {}
        self._unfinished: list[tuple[Any, Any]] = []
        """Reads that were given up and cannot be cancelled: their buffers must stay."""

    async def offer(self, blob: bytes, timeout_s: float) -> bytes:
        if len(blob) > self._arena.size:
            raise TransportError(
                f"nixl: KV of {len(blob)} bytes, {self._arena.size} may be offered; lower segment_tokens"
            )
        async with asyncio.timeout(timeout_s):
            while (start := self._arena.take(len(blob))) is None:
                self._freed.clear()
                await self._freed.wait()
        self._memory[start : start + len(blob)] = np.frombuffer(blob, np.uint8)
        return msgspec.msgpack.encode(_Ticket(self._metadata, self._address(self._memory) + start, len(blob)))

    def withdraw(self, ticket: bytes) -> None:
        start = _decoder.decode(ticket).address - self._address(self._memory)
        self._arena.give_back(start)
        self._freed.set()

    async def fetch(self, ticket: bytes, timeout_s: float) -> bytes:
        try:
            offered = _decoder.decode(ticket)
        except msgspec.DecodeError as error:
            raise TransportError(f"nixl: unreadable ticket: {error}") from None
        buffer = np.zeros(offered.size, np.uint8)
        registered = self._register(buffer)
        handle = None
        try:
            handle = self._begin(offered, buffer)
            async with asyncio.timeout(timeout_s):
                while (state := self._agent.check_xfer_state(handle)) == "PROC":  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)  # NIXL calls nobody back
            if state != "DONE":
                raise TransportError(f"nixl: reading {offered.size} bytes ended with {state}")
            return buffer.tobytes()
        except TimeoutError:
            raise TransportError(f"nixl: {offered.size} bytes not read within {timeout_s:g} s") from None
        except _nixl_errors() as error:
            raise TransportError(f"nixl: {type(error).__name__}: {_line(error)}") from None
        finally:
            self._release(handle, registered, buffer)

    def close(self) -> None:
        self._agent.deregister_memory(self._registered)

    def _begin(self, offered: _Ticket, buffer: Any) -> Any:
        if offered.agent not in self._peers:
            self._peers[offered.agent] = self._agent.add_remote_agent(offered.agent)
        here = self._agent.get_xfer_descs([(self._address(buffer), offered.size, 0)], _MEMORY)
        there = self._agent.get_xfer_descs([(offered.address, offered.size, 0)], _MEMORY)
        handle = self._agent.initialize_xfer("READ", here, there, self._peers[offered.agent])
        self._agent.transfer(handle)
        return handle

    def _register(self, memory: Any) -> Any:
        return self._agent.register_memory([(self._address(memory), memory.nbytes, 0, "")], _MEMORY)

    def _release(self, handle: Any, registered: Any, buffer: Any) -> None:
        try:
            if handle is not None:
                self._agent.release_xfer_handle(handle)
            self._agent.deregister_memory(registered)
        except _nixl_errors():
            self._unfinished.append((handle, buffer))

    @staticmethod
    def _address(memory: Any) -> int:
        return int(memory.ctypes.data)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _nixl_errors() -> tuple[type[Exception], ...]:
    """NIXL raises classes of its own binding, which have no common base but this."""
    from nixl_cu12 import _bindings  # noqa: PLC0415 - not there where NIXL is not installed

    return tuple(
        kind for kind in vars(_bindings).values() if isinstance(kind, type) and issubclass(kind, Exception)
    )
