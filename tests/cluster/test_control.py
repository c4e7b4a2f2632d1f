"""The control connection, with a worker or a router at its other end that behaves badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from adapters.engines import load_engine
from harness.cluster import messages as msg
from harness.cluster.frame import MAX_HEAD_BYTES
from harness.cluster.worker import Worker, WorkerConfig
from harness.cluster.worker_connection import WorkerAddress, WorkerConnection, WorkerRefusedError
from harness.engine import EngineInfo, EngineOptions
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.roles import Role
from tests.cluster.cluster import SECRET, cluster

INFO = EngineInfo("fake", "1", "m", "model", "layout", 100, 10, 100, 4, 8.0)
HELLO = msg.Hello(None, None)
Behaviour = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def connection_to(behave: Behaviour) -> AsyncIterator[Callable[[], Awaitable[WorkerConnection]]]:
    """Opens connections to a worker that does `behave` on each, and then closes."""

    async def control(request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        await behave(connection)
        return connection

    app = web.Application()
    app.add_routes([web.get("/control", control)])
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = WorkerAddress("w", Role.PREFILL, "A", "127.0.0.1", runner.addresses[0][1])
    async with aiohttp.ClientSession() as session:

        async def connect() -> WorkerConnection:
            return await WorkerConnection.open(
                session, address, SECRET, HELLO, start_timeout_s=10.0, heartbeat_s=10.0
            )

        try:
            yield connect
        finally:
            await runner.cleanup()


async def _dies(connection: web.WebSocketResponse) -> None:
    await connection.receive()


async def _talks_text(connection: web.WebSocketResponse) -> None:
    await connection.receive()
    await connection.send_str("hello")


async def _talks_nonsense(connection: web.WebSocketResponse) -> None:
    await connection.receive()
    await connection.send_bytes(b"nonsense")


async def _answers_wrongly(connection: web.WebSocketResponse) -> None:
    await connection.receive()
    await connection.send_bytes(msg.encode(msg.KvAck(1)))


@pytest.mark.parametrize("behave", [_dies, _talks_text, _talks_nonsense, _answers_wrongly])
def test_a_worker_that_fails_the_handshake_is_refused_in_one_line(behave: Behaviour) -> None:
    async def run() -> None:
        async with connection_to(behave) as connect:
            with pytest.raises(WorkerRefusedError, match=r"^w: [^\n]+$"):
                await connect()

    asyncio.run(run())


def test_a_command_that_cannot_be_sent_ends_the_connection_instead_of_going_missing() -> None:
    async def welcome(connection: web.WebSocketResponse) -> None:
        await connection.receive()
        await connection.send_bytes(msg.encode(msg.Welcome(INFO)))
        await connection.receive()

    async def run() -> str:
        async with connection_to(welcome) as connect, asyncio.timeout(20):
            connection = await connect()
            command = msg.Command(act.Open("r", 1, "w", 1), session="s" * (MAX_HEAD_BYTES + 1))
            connection.send(command)
            return await connection.talk(lambda event, ids: None, lambda counters: None)

    assert "go in one" in asyncio.run(run())


def test_a_router_that_stalls_gets_every_report_afterwards() -> None:
    """More events wait than the head of one frame holds."""
    waiting = 30_000

    async def run() -> int:
        engine = load_engine("emulated", EngineOptions(model="llama-3-8b", devices="h100x8"))
        worker = Worker(WorkerConfig("w", "127.0.0.1", 0, SECRET), engine)
        address = WorkerAddress("w", Role.PREFILL, "A", "127.0.0.1", await worker.start())
        seen = 0
        ended = asyncio.Event()

        def count(event: ev.Event, _: object) -> None:
            nonlocal seen
            seen += 1
            if seen == waiting:
                ended.set()

        try:
            async with aiohttp.ClientSession() as session, asyncio.timeout(30):
                connection = await WorkerConnection.open(
                    session, address, SECRET, HELLO, start_timeout_s=10.0, heartbeat_s=10.0
                )
                for i in range(waiting):
                    worker._tell(ev.WorkFailed(f"request-{i:032}", i, "w: an error of the usual length"))
                talking = asyncio.create_task(connection.talk(count, lambda counters: None))
                await ended.wait()
                talking.cancel()
                await asyncio.gather(talking, return_exceptions=True)
        finally:
            await worker.aclose()
        return seen

    assert asyncio.run(run()) == waiting


@pytest.mark.live
def test_a_router_that_is_told_the_impossible_fails_instead_of_going_on_deaf(tmp_path: Path) -> None:
    async def run() -> BaseException | None:
        async with cluster(tmp_path, "xdc") as running, asyncio.timeout(20):
            asking = asyncio.create_task(running.ask([300] * 20, 500, request="r"))
            while "r" not in running.router.policy.requests:
                await asyncio.sleep(0)
            work = next(iter(running.router.policy.requests["r"].works))
            running.workers["main_decode-0"]._tell(ev.ExtendDone("r", work))
            await asyncio.wait([running.router.failed])
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            return running.router.failed.exception()

    assert "cannot end like" in str(asyncio.run(run()))
