"""What the kernel knows of the TCP connections that cross the link: round trip and retransmissions."""

from __future__ import annotations

import socket
import statistics
import struct
from pathlib import Path
from typing import Final

_SOCK_DIAG_BY_FAMILY: Final = 20
_NETLINK_SOCK_DIAG: Final = 4
_REQUEST_DUMP: Final = 0x301
_DONE, _ERROR = 3, 2
_ESTABLISHED: Final = 1 << 1
_INFO: Final = 2
"""INET_DIAG_INFO: `struct tcp_info`."""
_REPLY_BYTES: Final = 72
"""`struct inet_diag_msg`, before the attributes."""
_RTT_OFFSET: Final = 68
"""Of tcpi_rtt in `struct tcp_info`, in us."""


def median_rtt_ns(other_end: str) -> int | None:
    """Smoothed RTT of the established connections to `other_end`, median; None without a connection.

    Speaks sock_diag itself: pyroute2 takes about 100 us to decode each connection, too much at 5 Hz.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(1)
        query = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED)
        query += bytes(48)  # no socket's identity: all of them
        header = struct.pack("=IHHII", 16 + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        netlink.send(header + query)
        address = socket.inet_aton(other_end)
        rtts_us: list[int] = []
        while True:
            data = netlink.recv(1 << 17)
            at = 0
            while at < len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind in (_DONE, _ERROR):
                    return round(statistics.median(rtts_us) * 1000) if rtts_us else None
                # The peer's address stands at 24 of the message, after family, state and ports.
                if data[at + 16 + 24 : at + 16 + 28] == address:
                    rtts_us += _rtts(data, at + 16 + _REPLY_BYTES, at + length)
                at += (length + 3) & ~3


def _rtts(data: bytes, at: int, end: int) -> list[int]:
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", data, at)
        if kind == _INFO:
            return list(struct.unpack_from("=I", data, at + 4 + _RTT_OFFSET))
        at += (length + 3) & ~3
    return []


def retransmitted_segments() -> int:
    """Of the calling thread's namespace since it was made, all connections, closed ones too."""
    lines = Path("/proc/thread-self/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])
