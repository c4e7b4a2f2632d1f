"""NIXL as the transport of KV: the two traps of vLLM's own NIXL connector, and peers that die."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from adapters.transports import load_transport
from adapters.transports.nixl import NixlTransport
from harness.kv_transport import TransportError
from harness.policy.roles import Role
from tests.cluster import cluster as live
from tests.cluster.test_modes import RELAY_ALL, replay_session
from tests.vllm import pool

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

MAIN = f"{Role.MAIN_DECODE.value}-0"
PROMPT = [300 + i % 200 for i in range(0, 1500, 5)]


def nixl(worker):
    return load_transport("nixl", worker)


class Late:
    """A worker that reads KV only when it is time: on loopback MD would be as fast as the relay decoder."""

    def __init__(self, transport, is_time):
        self._transport = transport
        self._is_time = is_time
        self.offer, self.withdraw, self.close = transport.offer, transport.withdraw, transport.close

    async def fetch(self, ticket, timeout_s):
        while not self._is_time():
            await asyncio.sleep(0.002)
        return await self._transport.fetch(ticket, timeout_s)


@pytest.fixture
def _on_vllm(monkeypatch):
    monkeypatch.setattr(live, "load_engine", pool.load_engine)


def test_two_readers_of_one_producer_are_not_served_by_one_release():
    async def read():
        p, rld, md = nixl("p"), nixl("rld"), nixl("md")
        blob = os.urandom(3 << 20)
        first, second = await p.offer(blob, 5), await p.offer(blob, 5)
        assert await rld.fetch(first, 20) == blob
        p.withdraw(first)
        # What the first reader's place is used for next is not what the second one reads.
        await p.offer(os.urandom(3 << 20), 5)
        assert await md.fetch(second, 20) == blob
        p.withdraw(second)
        for transport in (p, rld, md):
            transport.close()

    asyncio.run(read())


@pytest.mark.usefixtures("_on_vllm")
def test_prompt_and_relayed_ids_are_never_claimed_as_computed_elsewhere(tmp_path):
    """MD gets KV of the prompt, and of nothing more: the relayed ids it computes itself, by vLLM's count."""

    emitted = {}

    async def ask():
        def transport(name):
            return Late(nixl(name), lambda: emitted["by"]() > 20) if name == MAIN else nixl(name)

        async with (
            live.cluster(
                tmp_path, "pdd", engine="vllm", policy=RELAY_ALL, rate_bytes_s=1e5, transport=transport
            ) as running,
            asyncio.timeout(120),
        ):
            emitted["by"] = lambda: sum(r.emitted for r in running.router.policy.requests.values())
            answer = await running.ask(PROMPT, 400, seed=5)
            await running.settled()
            audits = {w._thread.engine.audit() for w in running.workers.values()}
            return answer, audits, running.workers[MAIN]._thread.engine.usage()

    async def alone():
        async with live.cluster(tmp_path / "alone", "colocated", engine="vllm") as running:
            return (await running.ask(PROMPT, 400, seed=5)).ids

    answer, audits, md = asyncio.run(ask())
    assert answer.error is None
    assert audits == {None}
    relayed = answer.times["relay_tokens"]
    assert 0 < relayed < 400
    assert md.external_tokens == len(PROMPT) - 1
    assert md.computed_tokens == 1 + relayed + md.decoded_tokens - 1
    assert answer.ids == asyncio.run(alone())


def test_other_engines_are_served_as_well(tmp_path):
    async def replay(mode, **more):
        async with live.cluster(tmp_path / mode, mode, **more) as running:
            answers = await replay_session(running, 1, 0.8)
            await running.settled()
            return [a.ids for a in answers]

    expected = asyncio.run(replay("colocated"))
    assert asyncio.run(replay("pdd-kv", policy=RELAY_ALL, transport=nixl)) == expected


def test_an_offer_waits_for_room_within_bounds():
    async def fill():
        agent = nixl("small")._agent
        transport = NixlTransport(agent, 1 << 20)
        with pytest.raises(TransportError, match="lower segment_tokens"):
            await transport.offer(bytes(2 << 20), 1)
        first = await transport.offer(bytes(1 << 20), 1)
        with pytest.raises(TimeoutError):
            await transport.offer(b"x", 0.05)
        waiting = asyncio.create_task(transport.offer(b"x", 5))
        await asyncio.sleep(0)
        transport.withdraw(first)
        transport.withdraw(await waiting)
        transport.close()

    asyncio.run(fill())


PRODUCER = """
import asyncio, sys
from adapters.transports import load_transport
transport = load_transport("nixl", "producer")
print(asyncio.run(transport.offer(bytes(64 << 20), 5)).hex(), flush=True)
sys.stdin.read()
"""


def test_a_producer_that_dies_ends_the_fetch_in_one_error():
    async def read(producer, ticket):
        consumer = nixl("consumer")
        fetching = asyncio.create_task(consumer.fetch(ticket, 10))
        await asyncio.sleep(0)
        os.kill(producer.pid, signal.SIGKILL)
        producer.wait()
        with pytest.raises(TransportError, match=r"^nixl: ") as failed:
            await fetching
        assert "\n" not in str(failed.value)
        # Its own agent is well.
        assert await nixl("reader").fetch(await consumer.offer(b"alive", 5), 10) == b"alive"

    command = [sys.executable, "-c", PRODUCER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        ticket = next(line for line in iter(producer.stdout.readline, "") if "NIXL" not in line)
        asyncio.run(read(producer, bytes.fromhex(ticket)))


def test_a_ticket_that_is_none_is_refused():
    async def read():
        with pytest.raises(TransportError, match="unreadable ticket"):
            await nixl("x").fetch(b"\xc1nothing", 1)

    asyncio.run(read())
