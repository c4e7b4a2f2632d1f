"""Profiles: the named ones make sense, and what makes none is refused by name."""

from __future__ import annotations

import msgspec
import pytest

from adapters.links import PROFILES, check, named
from adapters.links.profiles import SCALE, bandwidth_delay_bytes, mean_loss_share
from harness.link import Direction, LinkError, LinkProfile


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(LinkError, match="'moon': unknown; known profiles: quickstart, metro"):
        named("moon")


@pytest.mark.parametrize("name", PROFILES)
def test_every_named_profile_says_where_its_figures_come_from(name):
    profile = named(name)
    assert profile.name == name
    assert profile.source


def test_the_report_s_lines_are_scaled_by_the_stated_factor():
    assert [named(f"report-{g}g").a_to_b.rate_mbit for g in (10, 20, 100)] == [
        g * 1000 / SCALE for g in (10, 20, 100)
    ]


def test_the_relay_refuses_before_anything_is_opened():
    with pytest.raises(LinkError, match=r"'lossy': a_to_b\.burst_loss_enter_pct"):
        check("relay", named("lossy"))
    check("uml", named("lossy"))
    check("relay", named("congested"))


def test_a_profile_s_product_and_mean_loss():
    profile = LinkProfile("p", Direction(delay_ms=30, rate_mbit=100), Direction(delay_ms=10))
    assert bandwidth_delay_bytes(profile, profile.a_to_b) == 500_000
    assert bandwidth_delay_bytes(profile, profile.b_to_a) is None
    assert mean_loss_share(Direction(burst_loss_enter_pct=1, burst_loss_leave_pct=24)) == 0.04
    assert mean_loss_share(Direction(loss_pct=2)) == 0.02
    assert mean_loss_share(Direction(down=True)) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"delay_ms": -1}, "delay_ms: -1"),
        ({"delay_ms": 5, "jitter_ms": 6}, "jitter_ms: 6 exceeds delay_ms 5"),
        ({"loss_pct": 101}, "loss_pct: 101"),
        ({"loss_pct": 1, "burst_loss_enter_pct": 1}, "one loss model"),
        ({"burst_loss_enter_pct": 1, "burst_loss_leave_pct": 0}, "down = true"),
        ({"reorder_pct": 5}, "reorder_pct needs delay_ms"),
        ({"rate_mbit": 0}, "rate_mbit: 0"),
        ({"queue_packets": 0}, "queue_packets: 0"),
        ({"cross_traffic_flows": 65}, "cross_traffic_flows: 65"),
        ({"jitter_distribution": "cauchy"}, "cauchy"),
        ({"delay_s": 1}, "delay_s"),
    ],
)
def test_a_direction_that_cannot_be_is_refused_by_name(fields, said):
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(fields, Direction)
