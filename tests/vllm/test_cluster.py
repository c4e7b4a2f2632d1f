"""A cluster of vLLM workers: router, policy and wire do not know which engine they talk to."""

from __future__ import annotations

import asyncio
import functools
import random
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from adapters.engines import load_engine
from harness.cluster import kv_sender
from harness.cluster import messages as msg
from harness.cluster.worker_connection import WorkerRefusedError
from harness.policy.roles import Role
from tests.cluster import cluster as live
from tests.cluster import test_deaths, test_modes
from tests.vllm import pool

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

PROMPT = [random.Random(3).randrange(300, 500) for _ in range(300)]
TOKENS = 60
RELAYED_TOKENS = 200
RELAY_ALL: dict[str, Any] = {"routing": {"relay_bound_ms": 0.0}}


@pytest.fixture(autouse=True)
def _vllm_workers(monkeypatch):
    monkeypatch.setattr(live, "load_engine", pool.load_engine)
    monkeypatch.setattr(test_modes, "cluster", functools.partial(live.cluster, engine="vllm"))


def prepare_deaths(patch):
    """The kill table on vLLM workers, whose steps take ten times as long: fewer tokens reach every phase."""
    patch.setattr(live, "load_engine", pool.load_engine)
    patch.setattr(test_deaths, "cluster", functools.partial(live.cluster, engine="vllm"))
    patch.setattr(test_deaths, "TOKENS", RELAYED_TOKENS)
    patch.setitem(
        test_deaths.POLICY,
        "handoff",
        {"catch_up_threshold_tokens": 1, "switch_tokens": 2, "catch_up_batch_tokens": 16},
    )


def audits(running):
    return {name: worker._thread.engine.audit() for name, worker in running.workers.items()}


async def ask(tmp_path, mode, tokens=TOKENS, **more):
    async with live.cluster(tmp_path, mode, engine="vllm", **more) as running, asyncio.timeout(60):
        answer = await running.ask(PROMPT, tokens, seed=5)
        await running.settled()
        assert set(audits(running).values()) == {None}
        usage = {name: w._thread.engine.usage() for name, w in running.workers.items()}
        return answer, usage


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_mode_gives_the_same_tokens(tmp_path, temperature):
    expected = asyncio.run(test_modes.replay(tmp_path, "colocated", None, temperature))
    for i, (mode, policy) in enumerate(test_modes.VARIANTS):
        got = asyncio.run(test_modes.replay(tmp_path / str(i), mode, policy, temperature))
        assert [[a.ids for a in session] for session in got] == [
            [a.ids for a in session] for session in expected
        ], (mode, policy)


def test_nothing_is_computed_twice_by_vllms_own_counters(tmp_path):
    """What the policy believes of a handoff is what vLLM has computed: P the prompt, once; RLD its last id
    and the relayed tokens; MD its last id, the relayed tokens and its own."""
    answer, usage = asyncio.run(
        ask(tmp_path, "pdd", tokens=400, policy=RELAY_ALL, link=test_deaths.SLOW, rate_bytes_s=1e5)
    )
    assert answer.error is None
    n = len(PROMPT)
    p, rld, md = (usage[f"{role.value}-0"] for role in (Role.PREFILL, Role.RELAY_DECODE, Role.MAIN_DECODE))
    assert (p.computed_tokens, p.external_tokens) == (n - 1, 0)
    assert rld.external_tokens == md.external_tokens == n - 1
    # The last token of an answer is sampled, not computed.
    assert rld.computed_tokens == rld.decoded_tokens
    relayed = 400 - md.decoded_tokens
    assert 0 < relayed < 400
    assert md.computed_tokens == 1 + relayed + md.decoded_tokens - 1


class Scissors:
    """Cuts the connection in the middle of the `at`-th part of KV that goes to `target`."""

    def __init__(self, monkeypatch, target, at):
        self.target, self.at, self.seen, self.cut = target, at, 0, False
        push = kv_sender.KvSender._push
        scissors = self

        async def cutting_push(sender, lease, message, body=b""):
            if scissors._due(lease, message):
                transport = lease.connection._response.connection.transport
                frame = msg.encode(message, body)
                transport.write(b"\x82\x7f" + len(frame).to_bytes(8, "big") + frame[: len(frame) // 2])
                transport.abort()
            await push(sender, lease, message, body)

        monkeypatch.setattr(kv_sender.KvSender, "_push", cutting_push)

    def _due(self, lease, message):
        if self.cut or self.target not in lease._pool._url or not isinstance(message, msg.KvSegment):
            return False
        self.seen += 1
        self.cut = self.seen > self.at
        return self.cut


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "load_engine", pool.load_engine)
        answer, _ = asyncio.run(ask(tmp_path_factory.mktemp("whole"), "colocated"))
    assert len(answer.ids) == TOKENS
    return answer.ids


@pytest.mark.parametrize("point", range(5))
@pytest.mark.parametrize("role", [Role.RELAY_DECODE, Role.MAIN_DECODE])
def test_a_transfer_cut_in_the_middle_gives_the_right_tokens_or_one_clear_error(
    tmp_path, monkeypatch, whole, role, point
):
    async def cut() -> tuple[live.Answer, bool]:
        async with live.cluster(tmp_path, "pdd", engine="vllm", policy=RELAY_ALL) as running:
            port = running.workers[f"{role.value}-0"]._runner.addresses[0][1]
            scissors = Scissors(monkeypatch, f":{port}/", 2 * point)
            async with asyncio.timeout(60):
                answer = await running.ask(PROMPT, TOKENS, seed=5)
                await running.settled()
            assert set(audits(running).values()) == {None}
            assert not any(w._thread.engine.has_work() for w in running.workers.values())
            return answer, scissors.cut

    answer, was_cut = asyncio.run(cut())
    assert was_cut
    assert answer.ids == whole[: len(answer.ids)]
    if answer.error is None:
        assert len(answer.ids) == TOKENS
    else:
        assert "\n" not in answer.error


def test_an_idle_worker_costs_no_core(tmp_path):
    """Sequences that wait for KV are parked nowhere: the engine's thread sleeps."""

    async def idle() -> int:
        async with live.cluster(tmp_path, "pdd", engine="vllm", policy=RELAY_ALL) as running:
            thread = running.workers["main_decode-0"]._thread
            await thread.call(lambda: thread.engine.open(99, PROMPT))
            before = thread.engine.usage().steps
            waited = asyncio.get_running_loop().time() + 1.0
            while asyncio.get_running_loop().time() < waited:
                await thread.call(lambda: None)
                await asyncio.sleep(0.1)
            await thread.call(lambda: thread.engine.close(99, keep=False))
            return thread.engine.usage().steps - before

    assert asyncio.run(idle()) == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The answer that nobody's death may change."""
    with pytest.MonkeyPatch.context() as patch:
        prepare_deaths(patch)
        folder = tmp_path_factory.mktemp("undisturbed")
        counts = dict.fromkeys(test_deaths.ROLES, 1)
        answer, _ = asyncio.run(test_deaths.ask(folder, "pdd-catch-up", counts, None, Role.PREFILL))
    assert len(answer.ids) == RELAYED_TOKENS
    return answer.ids


@pytest.mark.parametrize("phase", test_deaths.PHASES)
def test_any_role_may_die_in_any_phase(tmp_path, monkeypatch, undisturbed, phase):
    prepare_deaths(monkeypatch)
    table = Table("phase", "spare workers", *(f"{role} dies" for role in test_deaths.ROLES))
    for spare in (1, 0):
        cells = []
        for role in test_deaths.ROLES:
            workers = dict.fromkeys(test_deaths.ROLES, 1 + spare)
            answer = test_deaths.ask_until_reached(tmp_path / f"{role}-{spare}", workers, phase, role)
            case = f"{role} dies while {phase}, {spare} spare"
            assert answer.ids == undisturbed[: len(answer.ids)], case
            if answer.error is None:
                assert len(answer.ids) == RELAYED_TOKENS, f"{case}: ended early without an error"
                cells.append("all tokens")
            else:
                assert not spare, f"{case}: {answer.error}"
                assert "\n" not in answer.error
                cells.append(f"error after {len(answer.ids)}")
        table.add_row(phase, str(spare), *cells)
    Console(width=180).print(table)


def test_a_cluster_of_llamacpp_and_vllm_is_refused(tmp_path, monkeypatch):
    def load(name, options):
        monkeypatch.setattr(live, "load_engine", pool.load_engine)
        return load_engine("llamacpp", options)

    async def start() -> None:
        async with live.cluster(tmp_path, "xdc", engine="vllm"):
            raise AssertionError("a mixed cluster has started")

    monkeypatch.setattr(live, "load_engine", load)
    with pytest.raises(WorkerRefusedError) as refused:
        asyncio.run(start())
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("main_decode-0: ")
    assert "cannot share KV with prefill-0" in message
    assert "llamacpp" in message
    assert "vllm" in message
