"""The options of the netem and tbf qdiscs as the kernel reads them (uapi/linux/pkt_sched.h).

Always every attribute: a change keeps what it is not told (rate, reorder, the distribution), so that a
profile would leave something of the one before.
"""

from __future__ import annotations

import struct
from typing import Final

from adapters.links.kernel.distribution import SIZE, table
from harness.link import Direction

TICKS_PER_US: Final = 15.625
"""The kernel's packet scheduler ticks every 64 ns."""

_CORR, _DELAY_DIST, _REORDER, _CORRUPT, _LOSS, _RATE = range(1, 7)
_PRNG_SEED: Final = 14
_LOSS_GILBERT_ELLIOTT: Final = 2
_ALL: Final = 0xFFFFFFFF
_KEEP_ORDER_BYTES_S: Final = 0xFFFFFFFF
"""With a rate, however high, netem serialises: a packet never leaves before the one in front of it."""

_TBF_PARMS, _TBF_BURST = 1, 6
_ETHERNET: Final = 1
_UNLIMITED_BYTES_S: Final = 0xFFFFFFFF
_ETHERNET_HEADER_BYTES: Final = 14


def netem_options(direction: Direction, *, limit_packets: int, seed: int) -> bytes:
    """Delay, jitter and everything that befalls single packets. Kernels before 6.6 ignore the seed."""
    burst_loss = direction.burst_loss_enter_pct > 0
    loss_pct = 100.0 if direction.down else 0.0 if burst_loss else direction.loss_pct
    fixed = struct.pack(
        "=6I",
        _ticks(direction.delay_ms),
        limit_packets,
        _share(loss_pct),
        1 if direction.reorder_pct else 0,
        _share(direction.duplicate_pct),
        _ticks(direction.jitter_ms),
    )
    keeps_order = direction.jitter_ms > 0 and not direction.reorder_pct
    options = fixed + b"".join(
        (
            _attribute(_CORR, struct.pack("=3I", 0, 0, 0)),
            _attribute(_REORDER, struct.pack("=2I", _share(direction.reorder_pct), 0)),
            _attribute(_CORRUPT, struct.pack("=2I", _share(direction.corrupt_pct), 0)),
            _attribute(_RATE, struct.pack("=IiIi", _KEEP_ORDER_BYTES_S if keeps_order else 0, 0, 0, 0)),
            _attribute(_DELAY_DIST, struct.pack(f"={SIZE}h", *table(direction.jitter_distribution))),
            _attribute(_PRNG_SEED, struct.pack("=Q", seed & (2**64 - 1))),
        )
    )
    if burst_loss and not direction.down:
        enter, leave = _share(direction.burst_loss_enter_pct), _share(direction.burst_loss_leave_pct)
        survives_in_lossy_state = lost_in_good_state = 0
        chain = struct.pack("=4I", enter, leave, survives_in_lossy_state, lost_in_good_state)
        options += _attribute(_LOSS, _attribute(_LOSS_GILBERT_ELLIOTT, chain))
    return options


def tbf_options(direction: Direction, *, limit_packets: int, mtu: int, burst_ms: float) -> bytes:
    """The line's rate and the queue in front of it. A timer late by up to `burst_ms` loses no rate."""
    frame_bytes = mtu + _ETHERNET_HEADER_BYTES
    rate = _UNLIMITED_BYTES_S if direction.rate_mbit is None else round(direction.rate_mbit * 125_000)
    burst_bytes = max(4 * frame_bytes, round(rate * burst_ms / 1000))
    ratespec = struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, rate)
    no_peak = bytes(len(ratespec))
    buffer_ticks = min(_ALL, round(burst_bytes / rate * 1e6 * TICKS_PER_US))
    parms = ratespec + no_peak + struct.pack("=3I", min(limit_packets * frame_bytes, _ALL), buffer_ticks, 0)
    return _attribute(_TBF_PARMS, parms) + _attribute(_TBF_BURST, struct.pack("=I", burst_bytes))


def _attribute(kind: int, payload: bytes) -> bytes:
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + bytes(-length % 4)


def _ticks(milliseconds: float) -> int:
    return round(milliseconds * 1000 * TICKS_PER_US)


def _share(percent: float) -> int:
    return round(percent / 100 * _ALL)
