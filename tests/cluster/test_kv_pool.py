"""The pool of KV connections: no place is lost or made up, whoever is cancelled, refused or demoted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from harness.cluster.kv_pool import KvPool


@asynccontextmanager
async def pool_of(size: int) -> AsyncIterator[tuple[KvPool, list[int]]]:
    """A pool to a receiver that refuses (503) while the list is not empty, one entry a refusal."""
    refusals: list[int] = []

    async def kv(request: web.Request) -> web.StreamResponse:
        if refusals:
            refusals.pop()
            raise web.HTTPServiceUnavailable
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        async for _ in connection:
            pass
        return connection

    app = web.Application()
    app.add_routes([web.get("/kv", kv)])
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        pool = KvPool(session, f"http://127.0.0.1:{runner.addresses[0][1]}/kv", "secret", size, 5.0)
        try:
            yield pool, refusals
        finally:
            await pool.aclose()
            await runner.cleanup()


async def _cancelled_while_waiting(pool: KvPool, _: list[int]) -> None:
    async def wait() -> None:
        async with pool.lease():
            raise AssertionError("there was no place")

    async with pool.lease():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()


async def _refused(pool: KvPool, refusals: list[int]) -> None:
    refusals.append(1)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        async with pool.lease():
            raise AssertionError("there was no connection")


async def _failed_under_way(pool: KvPool, _: list[int]) -> None:
    with pytest.raises(ValueError, match="under way"):
        async with pool.lease():
            raise ValueError("under way")


async def _demoted_twice(pool: KvPool, _: list[int]) -> None:
    async with pool.lease() as lease:
        lease.demote()
        lease.demote()
        async with pool.lease():
            pass
        await lease.turn()


async def _demoted_and_failed(pool: KvPool, _: list[int]) -> None:
    async def fail() -> None:
        async with pool.lease() as lease:
            lease.demote()
            raise ValueError("demoted")

    with pytest.raises(ValueError, match="demoted"):
        await fail()


@pytest.mark.parametrize(
    "happens",
    [_cancelled_while_waiting, _refused, _failed_under_way, _demoted_twice, _demoted_and_failed],
)
def test_afterwards_there_are_as_many_places_as_before(
    happens: Callable[[KvPool, list[int]], Awaitable[None]],
) -> None:
    async def run() -> None:
        async with pool_of(1) as (pool, refusals):
            await happens(pool, refusals)
            await pool.until_quiet()
            async with pool.lease():
                assert pool._places.locked(), "there is one place more"
            assert not pool._places.locked(), "a place is lost"

    asyncio.run(run())


def test_a_demoted_transfer_sends_only_when_no_other_wants_the_line() -> None:
    async def run() -> list[str]:
        order: list[str] = []
        async with pool_of(1) as (pool, _), pool.lease() as demoted:
            demoted.demote()

            async def send_on() -> None:
                await demoted.turn()
                order.append("demoted")

            async with pool.lease():
                sending = asyncio.create_task(send_on())
                await asyncio.sleep(0.02)
                order.append("other")
            await sending
        return order

    assert asyncio.run(run()) == ["other", "demoted"]
