"""PDD between servers that know nothing of it: by recomputation, with the tokens of one server alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.engines import load_engine
from harness.cluster.unknowable import KV_COLUMNS
from harness.cluster.worker_connection import WorkerRefusedError
from harness.engine import Engine, EngineOptions
from reports.run import Run
from reports.schema import HANDOFFS
from tests.cluster import cluster as live
from tests.cluster.test_modes import CATCH_UP, RELAY_ALL
from tests.reports.fake_run import FakeRun

pytestmark = pytest.mark.live

PROMPT = [300 + i % 200 for i in range(0, 1500, 5)]
TOKENS = 1000
OPTIONS = EngineOptions(max_sequences=8, max_context_tokens=2048, vocab_size=514)


@asynccontextmanager
async def degraded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str, policy: dict[str, Any]
) -> AsyncIterator[tuple[live.Cluster, live.Cluster, live.Cluster]]:
    """P and RLD in front of one server, MD in front of another."""
    async with (
        live.cluster(folder / "a", "colocated") as a,
        live.cluster(folder / "b", "colocated") as b,
    ):
        urls = itertools.chain(
            *(itertools.repeat(f"http://127.0.0.1:{s.port}", n) for s, n in ((a, 2), (b, 1)))
        )

        def load(name: str, options: EngineOptions) -> Engine:
            return load_engine(name, msgspec.structs.replace(options, endpoint=next(urls)))

        monkeypatch.setattr(live, "load_engine", load)
        async with live.cluster(folder, mode, engine="openai", policy=policy, options=OPTIONS) as running:
            yield running, a, b


def alone(folder: Path) -> list[int]:
    async def ask() -> list[int]:
        async with live.cluster(folder, "colocated") as running:
            return (await running.ask(PROMPT, TOKENS, seed=5)).ids

    return asyncio.run(ask())


@pytest.mark.parametrize(("mode", "policy"), [("pdd", RELAY_ALL), ("pdd-catch-up", CATCH_UP)])
def test_a_relayed_answer_is_that_of_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, policy: dict[str, Any]
) -> None:
    async def ask() -> live.Answer:
        async with degraded(tmp_path, monkeypatch, mode, policy) as (running, a, b):
            answer = await running.ask(PROMPT, TOKENS, seed=5)
            await running.settled()
            # Nothing is left behind on the servers either.
            await a.settled()
            await b.settled()
            return answer

    expected = alone(tmp_path / "alone")
    answer = asyncio.run(ask())
    assert answer.error is None
    assert answer.ids == expected
    assert 0 < answer.times["relay_tokens"] < TOKENS
    assert answer.times["extend_tokens"] > 0


def test_what_only_kv_has_is_null_in_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> live.Answer:
        async with degraded(tmp_path, monkeypatch, "pdd", RELAY_ALL) as (running, _, _):
            answer = await running.ask(PROMPT, 20, seed=5)
            await running.settled()
            await asyncio.sleep(0.5)  # the workers count twice in that time
            return answer

    answer = asyncio.run(ask())
    assert answer.usage["prompt_tokens_details"]["cached_tokens"] is None
    FakeRun().info([]).write(tmp_path)
    run = Run.open(tmp_path)
    (row,) = run.table("handoffs", "pdd").to_pylist()
    assert {name: row[name] for name in KV_COLUMNS} == dict.fromkeys(KV_COLUMNS)
    assert {c.name for c in HANDOFFS.columns} >= set(KV_COLUMNS)
    # What happened is known: when P had computed, when MD could go on, what was relayed.
    assert row["arrived_ns"] < row["prefill_done_ns"] < row["relay_first_token_ns"]
    assert row["main_transfer_done_ns"] is not None
    samples = run.table("worker_samples", "pdd").to_pylist()
    assert {s["computed_tokens"] for s in samples} == {s["held_tokens"] for s in samples} == {None}


def test_a_server_that_dies_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> live.Answer:
        async with degraded(tmp_path, monkeypatch, "pdd", RELAY_ALL) as (running, _, b):
            b.crash("colocated-0")
            answer = await running.ask(PROMPT, TOKENS, seed=5)
            await running.settled()
            return answer

    expected = alone(tmp_path / "alone")
    answer = asyncio.run(ask())
    # Without MD the relay decoder ends the answer.
    assert answer.error is None
    assert answer.ids == expected
    assert answer.times["relay_tokens"] == TOKENS


def mixed(openai: Callable[[str, EngineOptions], Engine]) -> Callable[[str, EngineOptions], Engine]:
    kinds = itertools.cycle(["llamacpp", "openai"])

    def load(name: str, options: EngineOptions) -> Engine:
        del name
        return openai("openai", options) if next(kinds) == "openai" else load_engine("llamacpp", OPTIONS)

    return load


def test_a_cluster_with_workers_that_hold_kv_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> None:
        async with live.cluster(tmp_path / "a", "colocated") as a:
            options = msgspec.structs.replace(OPTIONS, endpoint=f"http://127.0.0.1:{a.port}")
            monkeypatch.setattr(live, "load_engine", mixed(load_engine))
            async with live.cluster(tmp_path, "xdc", options=options):
                raise AssertionError("a mixed cluster has started")

    with pytest.raises(WorkerRefusedError, match="cannot share KV with"):
        asyncio.run(start())
