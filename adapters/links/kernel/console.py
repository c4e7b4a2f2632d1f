"""What the agent and the guest's init say to each other over the guest's console: one JSON object a line.

Lines of the guest that do not begin with a brace are its kernel's own and go to the log. An empty line to the
guest asks it to power off.
"""

from __future__ import annotations

import msgspec

from adapters.links.kernel.shaper import Counters
from adapters.links.messages import Refused
from harness.link import Direction


class Booted(msgspec.Struct, frozen=True, tag="booted"):
    """The guest's taps exist; set the hosts' ends up, then say `Join`."""

    kernel: str


class Join(msgspec.Struct, frozen=True, tag="join"):
    """Attach both ports to the bridge."""


class Shape(msgspec.Struct, frozen=True, tag="shape"):
    a_to_b: Direction
    b_to_a: Direction
    limit_packets: tuple[int, int]


class Count(msgspec.Struct, frozen=True, tag="count"):
    pass


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    a_to_b: Counters
    b_to_a: Counters


Order = Join | Shape | Count
Report = Booted | Done | Counted | Refused

encode = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode
decode_report = msgspec.json.Decoder(Report).decode
