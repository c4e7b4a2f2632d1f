"""The relay passes the conformance suite, and keeps its own promises: exact bytes, fairness, savings."""

from __future__ import annotations

import asyncio

import pytest

from adapters.links import open_link
from harness.link import LinkError
from tests.links.conformance import SEED, Line, LinkConformance, both, measure


class TestRelay(LinkConformance):
    driver = "relay"
    rtt_tolerance_ms = 5.0
    delays_ms = (1, 25)
    rates_mbit = (20, 100)
    rate_seconds = 1.2
    byte_overhead = (1.0, 1.0)


@pytest.mark.parametrize(
    "field",
    ["loss_pct", "burst_loss_enter_pct", "queue_packets", "reorder_pct", "duplicate_pct", "corrupt_pct"],
)
def test_what_needs_packets_is_refused_by_name(field, tmp_path):
    with pytest.raises(LinkError, match=rf"a_to_b\.{field}: the relay driver"):
        asyncio.run(open_link("relay", both(delay_ms=1, **{field: 5}), run_dir=tmp_path, seed=SEED))


def test_distributions_without_a_model_are_refused_by_name(tmp_path):
    profile = both(delay_ms=5, jitter_ms=1, jitter_distribution="pareto")
    with pytest.raises(LinkError, match="pareto; it can do: normal, uniform"):
        asyncio.run(open_link("relay", profile, run_dir=tmp_path, seed=SEED))


@pytest.fixture
def line(tmp_path):
    line = Line("relay", tmp_path)
    yield line
    line.close()


def test_four_flows_share_the_rate_equally(line):
    """Opened together, from here: what a process takes to start would count as unfairness."""

    async def flow(address, loop):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"s")
        start = loop.time()
        writer.write(bytes(1_500_000))
        writer.write_eof()
        await reader.readline()
        writer.close()
        return loop.time() - start

    async def body():
        async with line.peers(both(delay_ms=5, rate_mbit=40)) as ends:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(flow(ends.address, loop) for _ in range(4)))

    # 6 MB at 40 Mbit/s take 1.2 s.
    measure(lambda: line.run(body()), lambda seconds: max(seconds) > 1 and min(seconds) > 0.7 * max(seconds))


def test_a_sender_that_gives_up_saves_what_it_has_not_sent(line):
    async def body():
        async with line.peers(both(delay_ms=10, rate_mbit=20)) as ends:
            process = await ends.start("push", 50_000_000)
            carried = 0
            while carried < 500_000:
                await asyncio.sleep(0.05)
                carried = (await ends.link.sample())[0].sent_bytes
            process.kill()
            await process.wait()
            assert (await ends.server_says())["ended"] in ("eof", "ConnectionResetError")
            return (await ends.link.sample())[0].sent_bytes

    # What the sender's kernel had taken (its send buffer, a few MB at most) may still be carried.
    assert line.run(body()) < 10_000_000


def test_a_reset_reaches_the_other_side(line):
    async def body():
        async with line.peers(both(delay_ms=5)) as ends:
            reader, writer = await asyncio.open_connection(*ends.address)
            writer.write(b"ehello")
            assert await asyncio.wait_for(reader.readexactly(5), 5) == b"hello"
            writer.transport.abort()
            return await ends.server_says()

    assert line.run(body())["ended"] in ("eof", "ConnectionResetError")


def test_a_refused_endpoint_looks_refused_through_the_relay(tmp_path):
    async def body():
        link = await open_link("relay", both(delay_ms=2), run_dir=tmp_path, seed=SEED)
        try:
            address = await link.route("127.0.0.1", 1)
            reader, _ = await asyncio.open_connection(*address)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 5)
        finally:
            await link.aclose()

    asyncio.run(body())
