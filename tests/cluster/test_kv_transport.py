"""KV whose bytes another transport carries: who keeps what for whom, and what is said when it fails."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.kv_transport import TransportError
from tests.cluster.cluster import Answer, cluster
from tests.cluster.test_modes import RELAY_ALL, replay_session

pytestmark = pytest.mark.live

PROMPT = [300 + i % 200 for i in range(0, 1500, 5)]
TOKENS = 60


@dataclass
class Memory:
    """What all workers offer."""

    blobs: dict[bytes, bytes] = field(default_factory=dict)
    offered: int = 0
    fetched: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)


@dataclass
class Lent:
    """One worker's transport. `fails` says what a fetch by this worker does instead."""

    worker: str
    memory: Memory
    fails: str | None = None
    gate: asyncio.Event | None = None
    closed: bool = False

    async def offer(self, blob: bytes, timeout_s: float) -> bytes:
        del timeout_s
        ticket = f"{self.worker}/{next(self.memory.numbers)}".encode()
        self.memory.blobs[ticket] = blob
        self.memory.offered += 1
        return ticket

    def withdraw(self, ticket: bytes) -> None:
        self.memory.blobs.pop(ticket, None)

    async def fetch(self, ticket: bytes, timeout_s: float) -> bytes:
        if self.gate is not None:
            async with asyncio.timeout(timeout_s):
                await self.gate.wait()
        if self.fails is not None:
            raise TransportError(self.fails)
        self.memory.fetched.append(self.worker)
        return self.memory.blobs[ticket]

    def close(self) -> None:
        self.closed = True


async def plain(tmp_path: Path) -> Answer:
    async with cluster(tmp_path, "colocated") as running:
        return await running.ask(PROMPT, TOKENS, seed=5)


def test_the_tokens_are_the_same_and_no_byte_takes_the_other_way(tmp_path: Path) -> None:
    async def ask() -> tuple[Memory, list[list[int]]]:
        memory = Memory()
        async with cluster(
            tmp_path / "pdd", "pdd", policy=RELAY_ALL, transport=lambda name: Lent(name, memory)
        ) as running:
            answers = await replay_session(running, 1, 0.8)
            await running.settled()
        return memory, [a.ids for a in answers]

    async def expected() -> list[list[int]]:
        async with cluster(tmp_path / "alone", "colocated") as running:
            return [a.ids for a in await replay_session(running, 1, 0.8)]

    memory, ids = asyncio.run(ask())
    assert ids == asyncio.run(expected())
    assert {"relay_decode-0", "main_decode-0"} <= set(memory.fetched)
    assert len(memory.fetched) == memory.offered
    assert memory.blobs == {}, "an offer was not withdrawn"


def test_a_reader_that_is_through_takes_nothing_from_the_other(tmp_path: Path) -> None:
    """RLD has fetched, and P has let its offer go, before MD begins to read."""

    async def ask() -> tuple[Answer, Answer]:
        memory, gate = Memory(), asyncio.Event()

        def transport(name: str) -> Lent:
            return Lent(name, memory, gate=gate if name == "main_decode-0" else None)

        async with cluster(tmp_path / "pdd", "pdd", policy=RELAY_ALL, transport=transport) as running:
            asking = asyncio.create_task(running.ask(PROMPT, TOKENS, seed=5))
            async with asyncio.timeout(30):
                while "relay_decode-0" not in memory.fetched or len(memory.blobs) != 1:
                    await asyncio.sleep(0.005)
            gate.set()
            answer = await asking
            await running.settled()
            assert memory.fetched.count("main_decode-0") > 0
        return answer, await plain(tmp_path / "alone")

    answer, alone = asyncio.run(ask())
    assert answer.error is None
    assert answer.ids == alone.ids


def test_a_fetch_that_fails_ends_in_the_right_tokens_or_one_error(tmp_path: Path) -> None:
    async def ask(broken: str) -> tuple[Answer, Memory]:
        memory = Memory()

        def transport(name: str) -> Lent:
            return Lent(name, memory, fails="no route" if name == broken else None)

        async with cluster(tmp_path / broken, "pdd", policy=RELAY_ALL, transport=transport) as running:
            answer = await running.ask(PROMPT, TOKENS, seed=5)
            await running.settled()
        return answer, memory

    alone = asyncio.run(plain(tmp_path / "alone"))
    for broken in ("relay_decode-0", "main_decode-0"):
        answer, memory = asyncio.run(ask(broken))
        assert answer.error is None, broken
        assert answer.ids == alone.ids, broken
        assert broken not in memory.fetched
        assert memory.blobs == {}


def test_a_worker_without_the_transport_says_so(tmp_path: Path) -> None:
    async def ask() -> Answer:
        memory = Memory()
        async with cluster(
            tmp_path, "xdc", transport=lambda name: Lent(name, memory) if name == "prefill-0" else None
        ) as running:
            answer = await running.ask(PROMPT, TOKENS, seed=5)
            await running.settled()
            return answer

    answer = asyncio.run(ask())
    assert answer.error is not None
    assert "main_decode-0: offered KV to fetch, but has no transport for it" in answer.error
    assert "\n" not in answer.error


def test_transports_are_closed_with_their_workers(tmp_path: Path) -> None:
    made: list[Lent] = []

    def transport(name: str) -> Lent:
        made.append(Lent(name, Memory()))
        return made[-1]

    async def start() -> None:
        async with cluster(tmp_path, "xdc", transport=transport):
            assert not any(t.closed for t in made)

    asyncio.run(start())
    assert [t.closed for t in made] == [True, True]
