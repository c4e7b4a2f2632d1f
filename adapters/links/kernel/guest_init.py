"""Init of the user-mode-linux guest: a bridge between two taps, shaped, and nothing else.

The guest sees the host's file system read-only, so this is the host's Python and the same shaper. A console
whose other end is gone looks silent to the guest, not ended: after SILENCE_S without an order it powers
itself off, so that a guest never outlives its agent for long.
"""

from __future__ import annotations

import os
import platform
import select
import sys
import traceback
import tty
from typing import TYPE_CHECKING, Final, assert_never

from adapters.links.kernel.guest_modules import load
from adapters.links.kernel.syscalls import mount, power_off

if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS: Final = ("vec0", "vec1")
"""Towards A and towards B."""

SILENCE_S: Final = 20.0


def serve(seed: int, burst_ms: float) -> None:
    # Imported only now: pyroute2 reads /proc/net/psched.
    from adapters.links.kernel import ports  # noqa: PLC0415
    from adapters.links.kernel.console import (  # noqa: PLC0415
        Booted,
        Count,
        Counted,
        Done,
        Join,
        Order,
        Report,
        Shape,
        decode_order,
        encode,
    )
    from adapters.links.kernel.shaper import Shaper  # noqa: PLC0415
    from adapters.links.messages import Refused  # noqa: PLC0415
    from harness.link import LinkError  # noqa: PLC0415

    def carry_out(order: Order) -> Report:
        match order:
            case Join():
                ports.join(bridge, PORTS)
                return Done()
            case Shape(a_to_b, b_to_a, limits):
                towards_b.apply(a_to_b, limit_packets=limits[0])
                towards_a.apply(b_to_a, limit_packets=limits[1])
                return Done()
            case Count():
                return Counted(towards_b.counters(), towards_a.counters())
        assert_never(order)

    def say(report: Report) -> None:
        sys.stdout.buffer.write(encode(report) + b"\n")
        sys.stdout.buffer.flush()

    bridge = ports.bridge(PORTS)
    towards_a, towards_b = (
        Shaper(port, mtu=ports.MTU, burst_ms=burst_ms, seed=seed + i) for i, port in enumerate(PORTS)
    )
    say(Booted(f"Linux {platform.release()} (user-mode)"))
    for line in _lines():
        try:
            say(carry_out(decode_order(line)))
        except LinkError as error:
            say(Refused(str(error)))


def _lines() -> Iterator[bytes]:
    """Of the console, until it ends, falls silent, or says an empty line."""
    pending = b""
    while select.select([0], [], [], SILENCE_S)[0] and (data := os.read(0, 65536)):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if not line:
                return
            yield line


def main() -> None:
    try:
        # The console is a terminal: without echo, and lines of any length.
        tty.setraw(0)
        mount("proc", "/proc", "proc")
        mount("sys", "/sys", "sysfs")
        load()
        # Else a flood of packets keeps the orders waiting for seconds.
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        serve(int(sys.argv[1]), float(sys.argv[2]))
    except BaseException:  # noqa: BLE001 - an init that raises is a kernel panic; this is told instead
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os.sync()
        power_off()


if os.getpid() != 1:
    sys.exit("guest_init is the init of a user-mode-linux guest")
main()
