"""What the runner and a link's own process (its agent) say to each other: one JSON object a line.

The runner asks, the agent answers in order. The agent speaks first, with `Hello` or `Refused`; it undoes
everything when its input ends, so that a killed runner leaves nothing behind.
"""

from __future__ import annotations

import msgspec

from harness.link import Cluster, LinkDescription, LinkProfile, LinkSample


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The link is up, unshaped."""

    hosts: dict[Cluster, str]
    prefixes: dict[Cluster, list[str]]
    processes: dict[str, int]
    description: LinkDescription


class Route(msgspec.Struct, frozen=True, tag="route"):
    host: str
    port: int


class Routed(msgspec.Struct, frozen=True, tag="routed"):
    host: str
    port: int


class Apply(msgspec.Struct, frozen=True, tag="apply"):
    profile: LinkProfile


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """`details` are the shaping parameters now in force, as the description shows them."""

    details: dict[str, str]


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    pass


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    samples: list[LinkSample]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """One line, as LinkError wants it."""

    error: str


Request = Route | Apply | Sample
Reply = Hello | Routed | Applied | Sampled | Refused

encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_reply = msgspec.json.Decoder(Reply).decode
