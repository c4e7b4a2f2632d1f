"""What the guest does once its kernel is ready: bridge its two ports, shape them, and answer the agent."""

from __future__ import annotations

import platform
import socket
import sys
from typing import Final, assert_never

from adapters.links.kernel import control, ports
from adapters.links.kernel.control import Count, Counted, Done, Join, Order, PowerOff, Report, Shape
from adapters.links.kernel.shaper import Shaper
from adapters.links.messages import Refused
from harness.link import LinkError

PORTS: Final = ("vec0", "vec1")
"""Towards A and towards B."""

CONTROL: Final = "vec2"

SILENCE_S: Final = 20.0
"""An agent that says nothing for so long is gone."""


def serve(seed: int, burst_ms: float) -> None:
    """Until the agent says so, or is silent for too long."""
    bridge = ports.bridge(PORTS)
    towards_a, towards_b = (
        Shaper(port, mtu=ports.MTU, burst_ms=burst_ms, seed=seed + i) for i, port in enumerate(PORTS)
    )

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
            case PowerOff():
                return Done()
        assert_never(order)

    ports.control_up(CONTROL, control.GUEST)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind((control.GUEST, control.PORT))
        wire.settimeout(SILENCE_S)
        sys.stdout.write(f"{control.BOOTED.decode()}Linux {platform.release()} (user-mode)\n")
        sys.stdout.flush()
        last, answer = 0, b""
        while True:
            try:
                data, agent = wire.recvfrom(control.MAX_BYTES)
            except TimeoutError:
                return
            number, order = control.decode_order(data)
            if number != last:
                try:
                    report = carry_out(order)
                except LinkError as error:
                    report = Refused(str(error))
                last, answer = number, control.encode(number, report)
            wire.sendto(answer, agent)
            if isinstance(order, PowerOff):
                return
