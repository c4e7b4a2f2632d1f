"""A link that was what its profile says is judged so; each way of being another is found and named."""

from __future__ import annotations

import itertools
import random

import pytest

from adapters.links import judge_link
from harness.link import Direction, LinkProfile, LinkSample

PROFILE = LinkProfile("line", Direction(delay_ms=20, rate_mbit=50), Direction(delay_ms=20, rate_mbit=50))
PERIOD_NS = 200_000_000
FULL = 50e6 / 8 * 0.2
"""Bytes the line carries in a period."""


def samples(
    profile=PROFILE,
    seconds=20,
    used=0.05,
    rtt_ms=40.2,
    loss=0.0,
    queue_drops=0,
    start_ns=0,
    driver="netem",
    seed=7,
):
    """A to B carries `used` of the rate, with a backlog when that is more than 0.5."""
    rng = random.Random(seed)
    sent = packets = dropped = queued = 0
    for step in range(seconds * 5):
        t_ns = start_ns + step * PERIOD_NS
        sent += round(FULL * used)
        new = round(FULL * used / 1500)
        lost = sum(rng.random() < loss for _ in range(new))
        packets += new - lost
        queued += queue_drops
        dropped += lost + queue_drops
        common = {"t_ns": t_ns, "driver": driver, "profile": profile.name, "rtt_ns": round(rtt_ms * 1e6)}
        yield LinkSample(
            direction="a_to_b",
            sent_bytes=sent,
            sent_packets=packets,
            dropped_packets=dropped,
            queue_dropped_packets=queued,
            backlog_bytes=100_000 if used > 0.5 else 0,
            **common,
        )
        yield LinkSample(direction="b_to_a", sent_bytes=0, sent_packets=0, dropped_packets=0, **common)


@pytest.mark.parametrize("used", [0.0, 0.05, 0.3, 0.95])
def test_a_link_as_its_profile_is_not_faulted(used):
    assert judge_link([PROFILE], samples(used=used)) == []


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"rtt_ms": 47}, "link under line: median RTT 47.0 ms on the idle line, 40 ± 2.0 ms expected"),
        ({"rtt_ms": 30}, "median RTT 30.0 ms"),
        ({"used": 0.6}, "link a_to_b under line: 60% of 50 Mbit/s carried while more was waiting"),
        ({"used": 1.2}, "120% of 50 Mbit/s carried"),
        ({"used": 0.3, "loss": 0.01}, "packets lost, 0.00% expected"),
        ({"queue_drops": 2}, "packets dropped by a full queue"),
    ],
)
def test_every_difference_is_named(seen, reason):
    (found,) = judge_link([PROFILE], samples(**seen))
    assert reason in found


def test_round_trips_under_load_are_not_the_line_s():
    assert judge_link([PROFILE], samples(used=0.95, rtt_ms=300)) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_asked_loss_is_expected_and_a_larger_one_is_not(seed):
    lossy = LinkProfile("lossy", Direction(delay_ms=20, rate_mbit=50, loss_pct=2), PROFILE.b_to_a)
    assert judge_link([lossy], samples(lossy, used=0.4, loss=0.02, seed=seed)) == []
    assert len(judge_link([lossy], samples(lossy, used=0.4, loss=0.05, seed=seed))) == 1


def test_a_queue_sized_by_the_profile_may_drop():
    short = LinkProfile("short", Direction(delay_ms=20, rate_mbit=50, queue_packets=50), PROFILE.b_to_a)
    assert judge_link([short], samples(short, queue_drops=3)) == []


def test_each_stretch_is_judged_by_the_profile_then_in_force():
    slow = LinkProfile("slow", Direction(delay_ms=100, rate_mbit=50), Direction(delay_ms=100, rate_mbit=50))
    seen = list(
        itertools.chain(
            samples(seconds=10),
            samples(slow, seconds=10, rtt_ms=200, start_ns=10_000_000_000),
            samples(seconds=10, rtt_ms=200, start_ns=20_000_000_000),
        )
    )
    assert judge_link([PROFILE, slow], seen) == [
        "link under line: median RTT 200.0 ms on the idle line, 40 ± 2.0 ms expected"
    ]


def test_a_line_that_is_down_has_no_delay_to_judge():
    down = LinkProfile("down", Direction(delay_ms=20, down=True), PROFILE.b_to_a)
    assert judge_link([down], samples(down, used=0.0, rtt_ms=500)) == []
