"""What each fault makes of a direction, and how an experiment writes it."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.links.profiles import mean_loss_share
from harness.faults import Fault, FaultError, kinds
from harness.faults.line import distorted
from harness.link import Direction, LinkProfile
from tests.faults.world import BASE

LINE = Direction(delay_ms=10, rate_mbit=50)


def read(**fields):
    return msgspec.convert(fields, Fault)


def test_a_fault_is_read_by_its_kind():
    fault = read(kind="latency_spike", at_s=3, duration_s=2, extra_ms=80, side="a_to_b")
    assert fault == kinds.LatencySpike(at_s=3, duration_s=2, extra_ms=80, side=kinds.Side.A_TO_B)
    assert (fault.kind, fault.label, fault.target) == ("latency_spike", "latency_spike", "a_to_b")


def test_unknown_keys_and_kinds_are_refused():
    with pytest.raises(msgspec.ValidationError, match="extra_s"):
        read(kind="latency_spike", at_s=3, duration_s=2, extra_s=1)
    with pytest.raises(msgspec.ValidationError, match="earthquake"):
        read(kind="earthquake", at_s=3)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "bandwidth_collapse", "factor": 0.2}, Direction(delay_ms=10, rate_mbit=10)),
        ({"kind": "bandwidth_collapse", "rate_mbit": 3}, Direction(delay_ms=10, rate_mbit=3)),
        ({"kind": "latency_spike", "extra_ms": 90}, Direction(delay_ms=100, rate_mbit=50)),
        ({"kind": "jitter_storm", "jitter_ms": 15}, Direction(delay_ms=25, jitter_ms=15, rate_mbit=50)),
        ({"kind": "partition"}, Direction(delay_ms=10, rate_mbit=50, down=True)),
        ({"kind": "flap"}, Direction(delay_ms=10, rate_mbit=50, down=True)),
        ({"kind": "bufferbloat", "flows": 4}, Direction(delay_ms=10, rate_mbit=50, cross_traffic_flows=4)),
    ],
)
def test_a_link_fault_distorts_a_direction(fault, expected):
    assert read(at_s=0, duration_s=1, **fault).distort(LINE) == expected


@given(st.floats(0.01, 90), st.floats(1, 50))
def test_a_loss_burst_loses_the_asked_share(loss_pct, burst_packets):
    fault = kinds.LossBurst(at_s=0, duration_s=1, loss_pct=loss_pct, burst_packets=burst_packets)
    try:
        direction = fault.distort(LINE)
    except ValueError:
        # A larger share than so short bursts can make: more than one entry a packet.
        assert loss_pct / (100 - loss_pct) / burst_packets > 1
        return
    assert mean_loss_share(direction) == pytest.approx(loss_pct / 100, rel=1e-9)


def test_faults_on_one_side_leave_the_other():
    fault = kinds.Partition(at_s=0, duration_s=1, side=kinds.Side.B_TO_A)
    profile = distorted(BASE, [fault])
    assert profile == LinkProfile(
        "base+partition", BASE.a_to_b, Direction(delay_ms=10, rate_mbit=50, down=True)
    )


def test_faults_add_up_and_are_all_named():
    spike = kinds.LatencySpike(at_s=0, duration_s=1, extra_ms=5)
    collapse = kinds.BandwidthCollapse(at_s=0, duration_s=1, name="slow")
    profile = distorted(BASE, [spike, collapse])
    assert profile.name == "base+latency_spike+slow"
    assert profile.a_to_b == Direction(delay_ms=15, rate_mbit=5)


def test_a_part_of_no_rate_is_refused():
    unlimited = LinkProfile(name="u", a_to_b=Direction(delay_ms=1), b_to_a=Direction(delay_ms=1))
    with pytest.raises(FaultError, match=r"fault bandwidth_collapse: a_to_b: .* give rate_mbit"):
        distorted(unlimited, [kinds.BandwidthCollapse(at_s=0, duration_s=1)])


@given(st.integers(), st.floats(0.1, 20), st.floats(0.05, 2), st.floats(0.05, 2))
def test_a_flap_alternates_within_its_time_and_repeats_with_its_seed(seed, duration_s, down_s, up_s):
    fault = kinds.Flap(at_s=5, duration_s=duration_s, down_s=down_s, up_s=up_s)
    windows = fault.windows(random.Random(seed))
    assert windows == fault.windows(random.Random(seed))
    edges = [edge for window in windows for edge in window]
    assert edges == sorted(edges)
    assert edges[0] == 5
    assert edges[-1] <= 5 + duration_s
    assert all(end - begin <= 1.5 * down_s + 1e-9 for begin, end in windows)
