"""Whether a link was what its profile says, told from its samples. A run on another link is invalid."""

from __future__ import annotations

import math
import statistics
from bisect import bisect
from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Final

from adapters.links.profiles import mean_loss_share
from harness.link import Direction, LinkProfile, LinkSample

RTT_TOLERANCE_MS: Final = {"netem": 1.0, "uml": 1.5, "relay": 3.0}
RTT_TOLERANCE_SHARE: Final = 0.05
MIN_RATE_SHARE: Final = 0.85
MAX_RATE_SHARE: Final = 1.05
LOSS_SLACK: Final = 0.001

_SETTLE_NS: Final = 1_000_000_000
"""After a change of profile: what was on the way then arrives as it left."""
_IDLE_SHARE: Final = 0.2
_MIN_RTTS: Final = 10
_MIN_BUSY_NS: Final = 2_000_000_000
_MIN_PACKETS: Final = 1000

Pair = tuple[LinkSample, LinkSample]


def judge_link(profiles: Iterable[LinkProfile], samples: Iterable[LinkSample]) -> list[str]:
    """Reasons, one line each, why the link was not what it should have been; none when it was.

    `profiles`: all that were in force at some time; a sample names the one of its instant. Delay is judged
    while the line is hardly used, rate while something waits for it, loss over the packets that were not
    dropped by a queue; a queue sized by the profile may drop, one sized by the driver may not.
    """
    known = {profile.name: profile for profile in profiles}
    reasons: dict[str, None] = {}
    ordered = sorted(samples, key=lambda sample: sample.t_ns)
    for name, group in groupby(ordered, key=lambda sample: sample.profile):
        stretch = list(group)
        settled = [s for s in stretch if s.t_ns >= stretch[0].t_ns + _SETTLE_NS]
        profile = known[name]
        for side, direction in (("a_to_b", profile.a_to_b), ("b_to_a", profile.b_to_a)):
            pairs = list(pairwise(s for s in settled if s.direction == side))
            for reason in (*_rate(direction, pairs), *_drops(direction, pairs)):
                reasons[f"link {side} under {name}: {reason}"] = None
        for reason in _delay(profile, settled):
            reasons[f"link under {name}: {reason}"] = None
    return list(reasons)


def _delay(profile: LinkProfile, settled: list[LinkSample]) -> Iterable[str]:
    if profile.a_to_b.down or profile.b_to_a.down:
        return
    busy_ns = sorted(
        new.t_ns
        for side, direction in (("a_to_b", profile.a_to_b), ("b_to_a", profile.b_to_a))
        for old, new in pairwise(s for s in settled if s.direction == side)
        if direction.cross_traffic_flows or _used_share(direction, old, new) > _IDLE_SHARE
    )
    rtts_ms = [
        s.rtt_ns / 1e6
        for s in settled
        if s.direction == "a_to_b" and s.rtt_ns is not None and not _near(busy_ns, s.t_ns)
    ]
    if len(rtts_ms) < _MIN_RTTS:
        return
    median = statistics.median(rtts_ms)
    # In-order jitter lengthens the way of what follows a late packet.
    jitter_ms = profile.a_to_b.jitter_ms + profile.b_to_a.jitter_ms
    tolerance = max(RTT_TOLERANCE_MS[settled[0].driver], RTT_TOLERANCE_SHARE * profile.rtt_ms) + jitter_ms
    if abs(median - profile.rtt_ms) > tolerance:
        yield f"median RTT {median:.1f} ms on the idle line, {profile.rtt_ms:g} ± {tolerance:.1f} ms expected"


def _near(instants_ns: list[int], t_ns: int) -> bool:
    """Within a second: the round trip was under way, or what had queued was still leaving."""
    return bisect(instants_ns, t_ns + _SETTLE_NS) > bisect(instants_ns, t_ns - _SETTLE_NS)


def _used_share(direction: Direction, old: LinkSample, new: LinkSample) -> float:
    """Of the rate, between two samples; without a rate nothing queues for it."""
    if direction.rate_mbit is None or old.sent_bytes is None or new.sent_bytes is None:
        return 0.0
    return (new.sent_bytes - old.sent_bytes) * 8e3 / (new.t_ns - old.t_ns) / direction.rate_mbit


def _rate(direction: Direction, pairs: list[Pair]) -> Iterable[str]:
    if direction.rate_mbit is None or direction.down or not pairs:
        return
    waiting = [(old, new) for old, new in pairs if old.backlog_bytes and new.backlog_bytes]
    waiting_ns = sum(new.t_ns - old.t_ns for old, new in waiting)
    if waiting_ns >= _MIN_BUSY_NS:
        share = (
            sum(_used_share(direction, *pair) * (pair[1].t_ns - pair[0].t_ns) for pair in waiting)
            / waiting_ns
        )
        if share < MIN_RATE_SHARE:
            yield f"{share:.0%} of {direction.rate_mbit:g} Mbit/s carried while more was waiting"
    whole = (pairs[0][0], pairs[-1][1])
    if whole[1].t_ns - whole[0].t_ns >= _MIN_BUSY_NS and _used_share(direction, *whole) > MAX_RATE_SHARE:
        yield f"{_used_share(direction, *whole):.0%} of {direction.rate_mbit:g} Mbit/s carried"


def _drops(direction: Direction, pairs: list[Pair]) -> Iterable[str]:
    if not pairs:
        return
    first, last = pairs[0][0], pairs[-1][1]
    if (
        first.dropped_packets is None
        or last.dropped_packets is None
        or first.sent_packets is None
        or last.sent_packets is None
    ):
        return
    by_queue = (last.queue_dropped_packets or 0) - (first.queue_dropped_packets or 0)
    if by_queue and direction.queue_packets is None:
        yield f"{by_queue} packets dropped by a full queue that was sized to drop none; set queue_packets"
    lost = last.dropped_packets - first.dropped_packets - by_queue
    offered = last.sent_packets - first.sent_packets + lost
    if offered < _MIN_PACKETS:
        return
    expected = mean_loss_share(direction)
    # Losses in bursts of n packets scatter as if there were n times fewer packets.
    burst_packets = 100 / direction.burst_loss_leave_pct if direction.burst_loss_enter_pct else 1.0
    scatter = 4 * math.sqrt(expected * (1 - expected) * burst_packets / offered)
    if abs(lost / offered - expected) > scatter + LOSS_SLACK:
        yield f"{lost / offered:.2%} of {offered} packets lost, {expected:.2%} expected"
