"""How much one TCP flow may have on the way, and what that means for sockets and queues.

A host's default windows would fill any queue on a slow line and never fill a fast, long one. Here a flow may
hold twice the bandwidth-delay product of the profile the link was opened with: one to fill it, one to queue.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Final

from adapters.links.profiles import bandwidth_delay_bytes
from harness.link import Direction, LinkProfile

MIN_WINDOW_BYTES: Final = 256 * 1024
UNLIMITED_WINDOW_BYTES: Final = 16 << 20
FLOWS: Final = 16
"""That a queue sized by None holds without a drop."""

_SETTINGS: Final = Path("/proc/sys/net/ipv4")
_RECORDED: Final = (
    "tcp_congestion_control",
    "tcp_rmem",
    "tcp_wmem",
    "tcp_sack",
    "tcp_ecn",
    "tcp_timestamps",
    "tcp_slow_start_after_idle",
    "tcp_no_metrics_save",
)


def window_bytes(profile: LinkProfile) -> int:
    """Of one flow: the larger direction's, as a host has one setting for both."""
    windows = [
        UNLIMITED_WINDOW_BYTES if product is None else 2 * product
        for product in (bandwidth_delay_bytes(profile, d) for d in (profile.a_to_b, profile.b_to_a))
    ]
    return max(MIN_WINDOW_BYTES, *windows)


def limit_packets(direction: Direction, *, window: int, mtu: int) -> int:
    """The queue's limit: the profile's, or room for FLOWS windows."""
    if direction.queue_packets is not None:
        return direction.queue_packets
    return math.ceil(FLOWS * window / mtu)


def tune(window: int) -> dict[str, str]:
    """Set the calling thread's namespace up for such windows; answers what is in force there."""
    # The kernel counts its own overhead of each packet as buffer: about as much again.
    _set("tcp_rmem", f"4096 131072 {2 * window}")
    _set("tcp_wmem", f"4096 65536 {2 * window}")
    # Linux's own default rather than this host's, where a namespace is allowed it; recorded either way.
    with contextlib.suppress(PermissionError):
        _set("tcp_congestion_control", "cubic")
    # Connections over a long-fat line are kept open, and the runs of a comparison learn nothing from others.
    _set("tcp_slow_start_after_idle", "0")
    _set("tcp_no_metrics_save", "1")
    return {name: " ".join((_SETTINGS / name).read_text().split()) for name in _RECORDED}


def _set(name: str, value: str) -> None:
    (_SETTINGS / name).write_text(value, encoding="ascii")
