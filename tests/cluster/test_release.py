"""KV is held for its readers, but not for ever: readers that never finish, and a router that falls silent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.engines import load_engine
from harness.cluster import messages as msg
from harness.cluster.frame import pack_ids
from harness.cluster.worker import Worker, WorkerConfig
from harness.engine import EngineOptions
from harness.policy import actions as act
from tests.cluster.cluster import SECRET, Answer, Cluster, cluster
from tests.cluster.test_kv_transport import Lent, Memory
from tests.cluster.test_modes import RELAY_ALL

pytestmark = pytest.mark.live

PROMPT = [300 + i % 200 for i in range(0, 1500, 5)]
TOKENS = 60


async def open_sequences(running: Cluster) -> dict[str, int]:
    usages = {name: await w._thread.call(w._thread.engine.usage) for name, w in running.workers.items()}
    return {name: usage.running + usage.waiting for name, usage in usages.items()}


async def ask(tmp_path: Path, mode: str, **more: Any) -> tuple[Answer, dict[str, int], float]:
    """A request whose MD begins to read P's KV and never finishes; what is open at the end, and how long it
    took."""
    memory, never = Memory(), asyncio.Event()

    def transport(name: str) -> Lent:
        return Lent(name, memory, gate=never if name == "main_decode-0" else None)

    async with cluster(tmp_path / "stuck", mode, transport=transport, **more) as running:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(60):
            answer = await running.ask(PROMPT, TOKENS, seed=5)
            await running.settled(60)
        took_s = loop.time() - began_s
        async with asyncio.timeout(10):
            while any((await open_sequences(running)).values()):
                await asyncio.sleep(0.01)
        return answer, await open_sequences(running), took_s


async def alone(tmp_path: Path) -> list[int]:
    async with cluster(tmp_path / "alone", "colocated") as running:
        return (await running.ask(PROMPT, TOKENS, seed=5)).ids


def test_a_reader_that_never_finishes_is_given_up_after_the_stall(tmp_path: Path) -> None:
    """The relay decoder ends the answer; P lets go once the transfer has stalled as often as is retried."""
    answer, open_, took_s = asyncio.run(ask(tmp_path, "pdd", policy=RELAY_ALL, stall_s=1.5))
    assert answer.error is None
    assert answer.ids == asyncio.run(alone(tmp_path))
    assert set(open_.values()) == {0}
    assert took_s < 20


def test_without_a_relay_the_request_fails_in_one_line_and_all_is_released(tmp_path: Path) -> None:
    answer, open_, _ = asyncio.run(ask(tmp_path, "xdc", stall_s=1.5))
    assert answer.error is not None
    assert "\n" not in answer.error
    assert set(open_.values()) == {0}


def test_the_deadline_of_the_request_releases_what_no_stall_does(tmp_path: Path) -> None:
    answer, open_, took_s = asyncio.run(
        ask(tmp_path, "xdc", stall_s=30.0, policy={"deadline_s": 1.0, "settle_s": 1.0})
    )
    assert answer.error is not None
    assert "deadline" in answer.error
    assert set(open_.values()) == {0}
    assert took_s < 15


def test_a_router_that_answers_no_ping_loses_what_was_held_for_it(tmp_path: Path) -> None:
    del tmp_path

    async def fall_silent() -> None:
        engine = load_engine("llamacpp", EngineOptions(max_sequences=4, max_context_tokens=1024))
        worker = Worker(WorkerConfig("p", "127.0.0.1", 0, SECRET, stall_s=0.5), engine)
        url = f"http://127.0.0.1:{await worker.start()}/control"
        try:
            async with aiohttp.ClientSession() as session:
                router = await session.ws_connect(url, headers={msg.SECRET_HEADER: SECRET}, autoping=False)
                await router.send_bytes(msg.encode(msg.Hello(None, None)))
                command = msg.Command(act.Prefill("r", 1, "p", len(PROMPT) - 1), session="s")
                await router.send_bytes(msg.encode(command, pack_ids(PROMPT)))
                async with asyncio.timeout(20):
                    while (await worker._thread.call(engine.usage)).waiting == 0:
                        await asyncio.sleep(0.01)
                    # Nothing is read and no ping answered from here on; the connection itself stays.
                    while (await worker._thread.call(engine.usage)).waiting:
                        await asyncio.sleep(0.01)
                    assert worker._router is None
                await router.close()
        finally:
            await worker.aclose()

    asyncio.run(fall_silent())
