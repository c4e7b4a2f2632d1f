"""Named link profiles and where their figures come from. All are one-way per direction, both alike."""

from __future__ import annotations

import math
from typing import Final

from harness.link import Direction, LinkError, LinkProfile

SCALE: Final = 400
"""Every named rate is a real line's rate divided by this: 20 Gbit/s becomes 50 Mbit/s, which a CPU cluster
can fill (its KV bytes per second are smaller by about the same factor)."""

_FIBRE: Final = "one-way delay = route in km x 4.9 us (light in fibre, index 1.468)"


def _line(line_gbit: float) -> float:
    return line_gbit * 1000 / SCALE


def _both(name: str, direction: Direction, source: str) -> LinkProfile:
    return LinkProfile(name=name, a_to_b=direction, b_to_a=direction, source=source)


PROFILES: Final[dict[str, LinkProfile]] = {
    p.name: p
    for p in (
        _both(
            "quickstart",
            Direction(delay_ms=10, rate_mbit=40),
            "two cores: a low-hit delta of 2.5 MB takes 0.5 s, a few hundred tokens of the tiny model",
        ),
        _both(
            "metro",
            Direction(delay_ms=1, rate_mbit=_line(100)),
            f"2 ms RTT, 200 km of route; {_FIBRE}; a 100 Gbit/s wave / {SCALE}",
        ),
        _both(
            "cross-country",
            Direction(delay_ms=15, rate_mbit=_line(40)),
            f"30 ms RTT, 3,000 km of route; {_FIBRE}; 40 Gbit/s / {SCALE}",
        ),
        _both(
            "intercontinental",
            Direction(delay_ms=75, rate_mbit=_line(20)),
            f"150 ms RTT, 15,000 km of route; {_FIBRE}; 20 Gbit/s / {SCALE}",
        ),
        _both(
            "congested",
            Direction(delay_ms=20, jitter_ms=6, rate_mbit=_line(8)),
            f"cross-country with 8 of 40 Gbit/s left by other traffic / {SCALE} and its queueing as jitter",
        ),
        _both(
            "lossy",
            Direction(delay_ms=15, rate_mbit=_line(40), burst_loss_enter_pct=0.02, burst_loss_leave_pct=25),
            f"cross-country with Gilbert-Elliott bursts of 4 packets, 0.08 % of all; 40 Gbit/s / {SCALE}",
        ),
        *(
            _both(
                f"report-{gbit}g",
                Direction(delay_ms=5, rate_mbit=_line(gbit)),
                f"the report's {gbit} Gbit/s line (arXiv:2609.13161) / {SCALE}; "
                "delay assumed: 10 ms RTT, 1,000 km of route",
            )
            for gbit in (10, 20, 100)
        ),
        _both("unshaped", Direction(), "no shaping: what the machine itself does"),
    )
}


def named(name: str) -> LinkProfile:
    """The profile of that name. LinkError listing the known ones."""
    try:
        return PROFILES[name]
    except KeyError:
        raise LinkError(f"link profile {name!r}: unknown; known profiles: {', '.join(PROFILES)}") from None


def mean_loss_share(direction: Direction) -> float:
    """Expected share of lost packets, 0 to 1: random loss, or the stationary share of the lossy state."""
    if direction.down:
        return 1.0
    if direction.burst_loss_enter_pct:
        enter, leave = direction.burst_loss_enter_pct, direction.burst_loss_leave_pct
        return enter / (enter + leave)
    return direction.loss_pct / 100


def bandwidth_delay_bytes(profile: LinkProfile, direction: Direction) -> int | None:
    """Bytes in flight that fill `direction` for one round trip; None when its rate is not limited."""
    if direction.rate_mbit is None:
        return None
    return math.ceil(direction.rate_mbit * 125 * profile.rtt_ms)
