"""The qdiscs of one direction: netem (delay, loss) and below it tbf (rate, queue).

The delay comes first and the rate acts when a packet leaves, so that a new rate holds at once also for what
is queued, and so that tbf's drops are those of a full queue and all others those that the profile asked for.
"""

from __future__ import annotations

import errno
from typing import Any, Final

import msgspec
from pyroute2 import IPRoute
from pyroute2.netlink import nlmsg_atoms
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins

from adapters.links.kernel.attributes import netem_options, tbf_options
from harness.link import Direction, LinkError

_IN_FLIGHT_PACKETS: Final = 1_000_000
"""netem holds what is on the wire, which the senders' windows bound: it must never be the queue."""

_NETEM_HANDLE: Final = 0x10000
_TBF_HANDLE: Final = 0x20000
_TBF_PARENT: Final = 0x10001


class Counters(msgspec.Struct, frozen=True):
    """Of one direction, since the link came up. `queue_dropped_packets` are among `dropped_packets`."""

    sent_bytes: int
    sent_packets: int
    dropped_packets: int
    queue_dropped_packets: int
    overlimits: int
    backlog_bytes: int


class _Encoded:
    """A qdisc plugin of pyroute2 whose options come encoded: its own know neither netem's distributions and
    loss models nor a tbf without a table of transmission times."""

    options = nlmsg_atoms.cdata

    @staticmethod
    def get_parameters(arguments: dict[str, Any]) -> bytes:
        encoded: bytes = arguments["encoded"]
        return encoded


plugins["netem"] = plugins["tbf"] = _Encoded


class Shaper:
    """Shapes what leaves `interface`. For one thread, inside the namespace of the interface."""

    def __init__(self, interface: str, *, mtu: int, burst_ms: float, seed: int) -> None:
        self._netlink = IPRoute()
        (self._index,) = self._netlink.link_lookup(ifname=interface)
        self._mtu = mtu
        self._burst_ms = burst_ms
        self._seed = seed
        self._shape(Direction(), limit_packets=1000, command="add")

    def apply(self, direction: Direction, *, limit_packets: int) -> None:
        """Now, also for what is queued."""
        self._shape(direction, limit_packets=limit_packets, command="change")

    def counters(self) -> Counters:
        netem: Any = None
        tbf: Any = None
        for qdisc in self._netlink.get_qdiscs(index=self._index):
            match qdisc["handle"]:
                case 0x10000:
                    netem = qdisc.get_attr("TCA_STATS")
                case 0x20000:
                    tbf = qdisc.get_attr("TCA_STATS")
        return Counters(
            sent_bytes=tbf["bytes"],
            sent_packets=tbf["packets"],
            # netem counts a packet that its child refuses among its own.
            dropped_packets=netem["drop"],
            queue_dropped_packets=tbf["drop"],
            overlimits=tbf["overlimits"],
            backlog_bytes=tbf["backlog"],
        )

    def _shape(self, direction: Direction, *, limit_packets: int, command: str) -> None:
        netem = netem_options(direction, limit_packets=_IN_FLIGHT_PACKETS, seed=self._seed)
        self._put("netem", _NETEM_HANDLE, TC_H_ROOT, netem, command)
        tbf = tbf_options(direction, limit_packets=limit_packets, mtu=self._mtu, burst_ms=self._burst_ms)
        self._put("tbf", _TBF_HANDLE, _TBF_PARENT, tbf, command)

    def _put(self, kind: str, handle: int, parent: int, options: bytes, command: str) -> None:
        try:
            self._netlink.tc(command, kind, index=self._index, handle=handle, parent=parent, encoded=options)
        except NetlinkError as error:
            if error.code == errno.ENOENT:
                raise LinkError(
                    f"qdisc {kind}: not in this kernel; install its modules (Ubuntu: linux-modules-extra-*, "
                    "Debian: linux-image-*) or, for --link uml, the package user-mode-linux"
                ) from None
            raise LinkError(f"qdisc {kind}: the kernel refused it: {error}") from None
