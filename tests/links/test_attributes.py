"""What is sent to the kernel says the profile, all of it, every time."""

from __future__ import annotations

import statistics
import struct

import pytest

pytest.importorskip("pyroute2", reason="netlink is Linux only")

from adapters.links.kernel.attributes import TICKS_PER_US, netem_options, tbf_options
from adapters.links.kernel.distribution import SCALE, SIZE, table
from adapters.links.kernel.windows import MIN_WINDOW_BYTES, limit_packets, window_bytes
from harness.link import Direction, JitterDistribution
from tests.links.conformance import both

FIXED_BYTES = 24


def attributes(data):
    found, at = {}, 0
    while at < len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        found[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def netem(**fields):
    data = netem_options(Direction(**fields), limit_packets=77, seed=5)
    return struct.unpack("=6I", data[:FIXED_BYTES]), attributes(data[FIXED_BYTES:])


def test_every_profile_sends_the_same_attributes_so_that_none_is_left_over():
    plain, busy = netem()[1], netem(delay_ms=9, jitter_ms=2, reorder_pct=3, corrupt_pct=1, loss_pct=4)[1]
    assert plain.keys() == busy.keys()


def test_delay_and_loss_are_in_the_kernel_s_units():
    (latency, limit, loss, gap, duplicate, jitter), _ = netem(delay_ms=20, jitter_ms=5, loss_pct=25)
    assert (latency, jitter) == (20_000 * TICKS_PER_US, 5_000 * TICKS_PER_US)
    assert (limit, gap, duplicate) == (77, 0, 0)
    assert loss == pytest.approx(2**32 / 4, abs=1)


def test_down_loses_all_and_burst_loss_none_at_random():
    assert netem(down=True)[0][2] == 2**32 - 1
    fixed, found = netem(burst_loss_enter_pct=1, burst_loss_leave_pct=50)
    assert fixed[2] == 0
    enter, leave, *rest = struct.unpack("=4I", attributes(found[5])[2])
    assert (enter, leave) == (round(2**32 / 100), pytest.approx(2**31, abs=1))
    assert rest == [0, 0]


def test_jitter_keeps_the_order_unless_reordering_is_asked_for():
    assert struct.unpack("=IiIi", netem(delay_ms=9, jitter_ms=2)[1][6])[0] > 0
    assert struct.unpack("=IiIi", netem(delay_ms=9, jitter_ms=2, reorder_pct=5)[1][6])[0] == 0
    assert struct.unpack("=IiIi", netem(delay_ms=9)[1][6])[0] == 0


def test_the_rate_has_a_burst_for_late_timers_and_a_queue_in_bytes():
    data = attributes(tbf_options(Direction(rate_mbit=80), limit_packets=10, mtu=1500, burst_ms=10))
    rate = struct.unpack_from("=BBHhHI", data[1])[5]
    limit = struct.unpack_from("=I", data[1], 24)[0]
    assert (rate, limit) == (10_000_000, 10 * 1514)
    assert struct.unpack("=I", data[6])[0] == 100_000


def test_even_a_slow_line_lets_whole_packets_pass():
    data = attributes(tbf_options(Direction(rate_mbit=0.01), limit_packets=1, mtu=1500, burst_ms=1))
    assert struct.unpack("=I", data[6])[0] >= 1514


@pytest.mark.parametrize("distribution", JitterDistribution)
def test_tables_are_centred_and_of_one_deviation(distribution):
    values = [value / SCALE for value in table(distribution)]
    assert len(values) == SIZE
    assert statistics.fmean(values) == pytest.approx(0, abs=0.05)
    expected = 3**-0.5 if distribution is JitterDistribution.UNIFORM else 1
    # netem's tables end at four deviations: the Pareto tail beyond is cut.
    assert statistics.pstdev(values) == pytest.approx(expected, abs=0.25)
    assert values == sorted(values)


def test_a_flow_may_fill_the_line_and_queue_as_much_again():
    assert window_bytes(both(delay_ms=50, rate_mbit=200)) == 2 * 2_500_000
    assert window_bytes(both(delay_ms=1, rate_mbit=10)) == MIN_WINDOW_BYTES


def test_the_queue_is_the_profile_s_or_holds_the_windows_of_16_flows():
    assert limit_packets(Direction(queue_packets=9), window=10**6, mtu=1500) == 9
    assert limit_packets(Direction(), window=1_500_000, mtu=1500) == 16_000
