"""Interfaces: what the ends and the middle of a link need of them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import socket
import struct
from pathlib import Path
from typing import Final

from pyroute2 import IPRoute

from adapters.links.kernel import control

ADDRESSES: Final = {"A": "198.18.0.1", "B": "198.18.0.2"}
"""Of the range kept for benchmarks (RFC 2544)."""

HARDWARE: Final = {"A": "02:00:00:00:00:0a", "B": "02:00:00:00:00:0b"}
NAME: Final = "wan"
MTU: Final = 1500

_SIOCETHTOOL: Final = 0x8946
OFF: Final = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C, "rx checksum": 0x15, "tx checksum": 0x17}
"""Features that are switched off, with their ETHTOOL_S* commands."""


def loopback_up() -> None:
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname="lo")
        netlink.link("set", index=index, state="up")


def end_up(cluster: str, interface: str) -> None:
    """Make `interface` the cluster's end. The other end is a known neighbour: no ARP runs."""
    other = "B" if cluster == "A" else "A"
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=interface)
        # An address under which no packet leaves by itself: the counters are to count the clusters' bytes.
        for name in Path("/proc/sys/net/ipv6/conf").glob("*/disable_ipv6"):
            name.write_text("1", encoding="ascii")
        netlink.link("set", index=index, ifname=NAME, address=HARDWARE[cluster], mtu=MTU, txqlen=10_000)
        netlink.addr("add", index=index, address=ADDRESSES[cluster], prefixlen=30)
        netlink.link("set", index=index, state="up")
        netlink.neigh("add", dst=ADDRESSES[other], lladdr=HARDWARE[other], ifindex=index, state="permanent")
    plain_packets(NAME)


def control_up(interface: str, address: str) -> None:
    """The guest's or the agent's end of the wire between them."""
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=interface)
        netlink.addr("add", index=index, address=address, prefixlen=control.PREFIX)
        netlink.link("set", index=index, state="up")


def plain_packets(interface: str) -> None:
    """Packets as on the wire: none larger than the MTU, so that loss, rate and queue act on each, and each
    with a checksum that the receiver looks at, so that a corrupted one is not taken for good."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFF.values():
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            request = struct.pack("@16sP16x", interface.encode(), ctypes.addressof(value))
            # A feature that the device has not got, or cannot switch, is refused; the tests see what matters.
            with contextlib.suppress(OSError):
                fcntl.ioctl(control, _SIOCETHTOOL, request)


def bridge(ports: tuple[str, str], name: str = "bridge") -> int:
    """A bridge that forwards from the first packet on. Answers its index; `join` attaches the ports."""
    with IPRoute() as netlink:
        netlink.link("add", ifname=name, kind="bridge", br_forward_delay=0)
        (index,) = netlink.link_lookup(ifname=name)
        for port in ports:
            (port_index,) = netlink.link_lookup(ifname=port)
            netlink.link("set", index=port_index, mtu=MTU, state="up")
        return int(index)


def join(bridge_index: int, ports: tuple[str, str]) -> None:
    with IPRoute() as netlink:
        for port in ports:
            (port_index,) = netlink.link_lookup(ifname=port)
            netlink.link("set", index=port_index, master=bridge_index)
        netlink.link("set", index=bridge_index, state="up")
