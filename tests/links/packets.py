"""What the drivers with real packets must do beyond the conformance of every link."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from pathlib import Path

from harness.link import Cluster, Direction, LinkProfile
from tests.links.conformance import LinkConformance, both, measure

DATAGRAMS = str(Path(__file__).with_name("datagrams.py"))
REACH = str(Path(__file__).with_name("reach.py"))


class PacketConformance(LinkConformance):
    interval_ms = 1.0
    """Between datagrams: what this machine's interpreter can keep up with."""

    def datagrams(self, line, profile, count, interval_ms=None):
        """Sends numbered datagrams from A to B. Answers the arrivals, (number, one-way ms, intact), how many
        packets that way were dropped meanwhile, and of these by the full queue."""

        async def body():
            link = line.link
            await link.apply(profile)
            before = (await link.sample())[0]
            arguments = [link.host(Cluster.B), str(count), str(interval_ms or self.interval_ms)]
            sink, source = [
                await asyncio.create_subprocess_exec(
                    *link.command_prefix(cluster),
                    sys.executable,
                    DATAGRAMS,
                    verb,
                    *arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for cluster, verb in ((Cluster.B, "sink"), (Cluster.A, "source"))
            ]
            assert await asyncio.wait_for(sink.stdout.readline(), 60) == b"ready\n"
            source.stdin.close()
            assert await asyncio.wait_for(source.wait(), 60) == 0
            out, _ = await asyncio.wait_for(sink.communicate(), 60)
            after = (await link.sample())[0]
            return (
                json.loads(out),
                after.dropped_packets - before.dropped_packets,
                after.queue_dropped_packets - before.queue_dropped_packets,
            )

        return line.run(body())

    def one_way(self, **fields):
        """Only A to B is shaped."""
        return LinkProfile(name="one-way", a_to_b=Direction(**fields), b_to_a=Direction())

    def test_random_loss_is_within_a_point_and_a_half(self, line):
        def body():
            arrived, dropped, queue_dropped = self.datagrams(line, self.one_way(delay_ms=1, loss_pct=5), 2000)
            assert dropped >= 2000 - len(arrived)
            assert queue_dropped == 0
            return 100 * (1 - len(arrived) / 2000)

        measure(body, lambda lost_pct: abs(lost_pct - 5) <= 1.5)

    def test_burst_loss_comes_in_bursts_of_the_mean_length(self, line):
        """Gilbert-Elliott: 2 % in, 25 % out: 7.4 % lost, bursts of 4 packets."""
        profile = self.one_way(delay_ms=1, burst_loss_enter_pct=2, burst_loss_leave_pct=25)
        arrived, *_ = self.datagrams(line, profile, 4000)
        numbers = {number for number, *_ in arrived}
        bursts = "".join("." if n in numbers else "x" for n in range(4000)).split(".")
        lengths = [len(burst) for burst in bursts if burst]
        print("lost, %:", 100 * sum(lengths) / 4000, "mean burst:", statistics.fmean(lengths))
        assert abs(100 * sum(lengths) / 4000 - 7.4) <= 2.5
        assert 2.8 <= statistics.fmean(lengths) <= 5.5

    def test_jitter_spreads_the_delay_and_keeps_the_order(self, line):
        def body():
            arrived, *_ = self.datagrams(line, self.one_way(delay_ms=30, jitter_ms=5), 400, interval_ms=20)
            assert [n for n, *_ in arrived] == sorted(n for n, *_ in arrived)
            return statistics.quantiles([ms for _, ms, _ in arrived], n=4)

        # Between its quartiles a normal distribution has 1.35 standard deviations.
        measure(body, lambda q: abs(q[1] - 30) <= 1.5 and 4.5 <= q[2] - q[0] <= 9.5)

    def test_jitter_keeps_the_order_of_a_dense_stream(self, line):
        arrived, *_ = self.datagrams(line, self.one_way(delay_ms=30, jitter_ms=10), 1000)
        assert [n for n, *_ in arrived] == sorted(n for n, *_ in arrived)

    def test_reorder_lets_the_asked_share_overtake(self, line):
        arrived, *_ = self.datagrams(line, self.one_way(delay_ms=100, reorder_pct=10), 2000)
        early = sum(1 for _, ms, _ in arrived if ms < 60)
        print("overtook, %:", 100 * early / len(arrived))
        assert abs(100 * early / len(arrived) - 10) <= 2.5
        assert len(arrived) == 2000

    def test_duplicates_are_the_asked_share(self, line):
        def body():
            arrived, *_ = self.datagrams(line, self.one_way(delay_ms=1, duplicate_pct=5), 2000)
            return 100 * (len(arrived) / 2000 - 1)

        measure(body, lambda more_pct: abs(more_pct - 5) <= 1.5)

    def test_corruption_is_the_asked_share(self, line):
        def body():
            arrived, *_ = self.datagrams(line, self.one_way(delay_ms=1, corrupt_pct=5), 2000)
            return 100 * (1 - len(arrived) / 2000)

        # A corrupted packet fails its checksum and is dropped by the receiver.
        measure(body, lambda lost_pct: abs(lost_pct - 5) <= 1.5)

    def test_a_short_queue_drops_and_says_so(self, line):
        profile = self.one_way(delay_ms=1, rate_mbit=0.1, queue_packets=2)
        arrived, dropped, queue_dropped = self.datagrams(line, profile, 400)
        assert len(arrived) < 400
        assert dropped >= queue_dropped >= 400 - len(arrived)

    def test_only_the_shaped_path_joins_the_clusters(self, line):
        """From A: nothing but A itself and B's address; nothing at all once the line is down."""

        async def reach(link, cluster, *targets):
            process = await asyncio.create_subprocess_exec(
                *link.command_prefix(cluster), sys.executable, REACH, *targets, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await asyncio.wait_for(process.communicate(), 30)
            return json.loads(out)

        async def body():
            link = line.link
            shaped = both(delay_ms=1)
            await link.apply(shaped)
            up = await reach(link, Cluster.A, link.host(Cluster.B), "192.0.2.1", "127.0.0.1")
            await link.apply(LinkProfile("down", Direction(down=True), shaped.b_to_a))
            return up, await reach(link, Cluster.A, link.host(Cluster.B), "127.0.0.1")

        up, down = line.run(body())
        assert sorted(up["interfaces"]) == ["lo", "wan"]
        b = line.link.host(Cluster.B)
        assert up["answers"] == {b: "refused", "192.0.2.1": "unreachable", "127.0.0.1": "refused"}
        assert down["answers"] == {b: "silent", "127.0.0.1": "refused"}
