"""Workers join, drain and leave while requests run; strangers are refused by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from adapters.engines import load_engine
from harness.cluster.messages import SECRET_HEADER
from harness.cluster.worker import Worker, WorkerConfig
from harness.cluster.worker_connection import WorkerAddress
from harness.engine import EngineOptions
from harness.policy.roles import Role
from tests.cluster.cluster import SECRET, Cluster, cluster
from tests.cluster.test_modes import RELAY_ALL, replay, replay_session

pytestmark = pytest.mark.live


async def start_worker(name: str, model: str = "tiny") -> tuple[Worker, WorkerAddress]:
    engine = await asyncio.to_thread(
        load_engine, "llamacpp", EngineOptions(model=model, max_sequences=16, max_context_tokens=2048)
    )
    worker = Worker(WorkerConfig(name, "127.0.0.1", 0, SECRET), engine)
    return worker, WorkerAddress(name, Role.MAIN_DECODE, "B", "127.0.0.1", await worker.start())


async def post(running: Cluster, path: str, body: bytes = b"", secret: str = SECRET) -> tuple[int, str]:
    url = f"http://127.0.0.1:{running.port}{path}"
    async with running.session.post(url, data=body, headers={SECRET_HEADER: secret}) as response:
        return response.status, await response.text()


def test_a_main_worker_joins_and_the_first_one_drains_under_load(tmp_path: Path) -> None:
    async def run() -> tuple[list[list[int]], tuple[str, ...], int]:
        async with cluster(tmp_path / "pool", "pdd", policy=RELAY_ALL) as running:
            sessions = asyncio.gather(*(replay_session(running, seed, 0.8) for seed in range(5)))
            worker, address = await start_worker("main_decode-1")
            running.workers[address.name] = worker
            assert (await post(running, "/admin/join", msgspec.json.encode(address)))[0] == 200
            assert (await post(running, "/admin/drain/main_decode-0"))[0] == 200
            answers = await sessions
            await running.settled()
            async with asyncio.timeout(10):
                while "main_decode-0" in running.router.workers_up:
                    await asyncio.sleep(0.01)
            decoded = worker._thread.engine.usage().decoded_tokens
            return [a.ids for s in answers for a in s], running.router.workers_up, decoded

    ids, up, decoded = asyncio.run(run())
    expected = asyncio.run(replay(tmp_path / "solo", "colocated", None, 0.8))
    assert ids == [a.ids for s in expected for a in s]
    assert "main_decode-1" in up
    assert decoded > 0


def test_a_worker_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    async def run() -> tuple[int, str]:
        async with cluster(tmp_path, "xdc") as running:
            worker, address = await start_worker("stranger", "tiny:kv=4096")
            try:
                return await post(running, "/admin/join", msgspec.json.encode(address))
            finally:
                await worker.aclose()

    status, said = asyncio.run(run())
    assert status == 400
    assert "stranger: model " in said
    assert "differs from the cluster's" in said


def test_without_the_secret_nothing_is_administered(tmp_path: Path) -> None:
    async def run() -> list[tuple[int, str]]:
        async with cluster(tmp_path, "xdc") as running:
            worker = running.workers["prefill-0"]
            port = worker._runner.addresses[0][1] if worker._runner else 0
            url = f"http://127.0.0.1:{port}/kv"
            async with running.session.get(url, headers={SECRET_HEADER: "wrong"}) as response:
                kv = response.status, await response.text()
            return [await post(running, "/admin/drain/prefill-0", secret="wrong"), kv]

    for status, said in asyncio.run(run()):
        assert status == 403
        assert "wrong X-PDD-Secret" in said
