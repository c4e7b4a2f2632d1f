"""What the agent and the guest say to each other, over a wire of their own that is not shaped.

Datagrams: a number, then a JSON object. The agent repeats an order until its answer comes; the guest answers
a repeated order as before. The guest's console cannot do it: it sees no end when the agent is gone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from adapters.links.kernel.shaper import Counters
from adapters.links.messages import Refused
from harness.link import Direction

AGENT: Final = "198.18.0.5"
GUEST: Final = "198.18.0.6"
PREFIX: Final = 30
PORT: Final = 7000
MAX_BYTES: Final = 4096
BOOTED: Final = b"guest-booted "
"""Begins the one line of the guest's console that is for the agent: the guest's kernel follows."""


class Join(msgspec.Struct, frozen=True, tag="join"):
    """Attach both ports to the bridge."""


class Shape(msgspec.Struct, frozen=True, tag="shape"):
    a_to_b: Direction
    b_to_a: Direction
    limit_packets: tuple[int, int]


class Count(msgspec.Struct, frozen=True, tag="count"):
    pass


class PowerOff(msgspec.Struct, frozen=True, tag="power_off"):
    pass


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    a_to_b: Counters
    b_to_a: Counters


Order = Join | Shape | Count | PowerOff
Report = Done | Counted | Refused

_encoder = msgspec.json.Encoder()
_orders = msgspec.json.Decoder(Order)
_reports = msgspec.json.Decoder(Report)


def encode(number: int, message: Order | Report) -> bytes:
    return number.to_bytes(4) + _encoder.encode(message)


def decode_order(data: bytes) -> tuple[int, Order]:
    return int.from_bytes(data[:4]), _orders.decode(data[4:])


def decode_report(data: bytes) -> tuple[int, Report]:
    return int.from_bytes(data[:4]), _reports.decode(data[4:])
