"""When bytes arrived: the kernel's receive time where there is one, on this process's monotonic clock.

On Linux a TCP socket with SO_TIMESTAMPNS hands out, with recvmsg, the realtime instant at which the
kernel received the segment: a process that reads late still knows. Segments that queued up coalesce and
carry the last one's instant, which the reply counts as merged reads.
"""

from __future__ import annotations

import struct
import sys
import time
from typing import TYPE_CHECKING, Final

from harness.clock import take_anchor

if TYPE_CHECKING:
    from _socket import socket

SOL_SOCKET: Final = 1
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h; Python exports it from 3.14 on
ANCILLARY_BYTES: Final = 64
unpack_timespec: Final = struct.Struct("qq").unpack

_REFRESH_TRIES: Final = 8


class StampClock:
    """The process's anchor, and how far the realtime clock has moved against it since.

    Kernel stamps are realtime: they are brought back to monotonic with the *current* offset, so that
    a step of the realtime clock spoils only what arrived between it and the next `refresh`.
    """

    __slots__ = ("anchor", "drift_ns", "error_ns", "kernel", "offset_ns", "worst_error_ns")

    def __init__(self, *, kernel: bool | None = None) -> None:
        self.anchor = take_anchor()
        self.kernel = sys.platform == "linux" and struct.calcsize("l") == 8 if kernel is None else kernel
        self.offset_ns = self.anchor.offset_ns
        self.error_ns = self.anchor.error_ns
        self.worst_error_ns = self.anchor.error_ns
        self.drift_ns = 0

    def refresh(self) -> None:
        """Read the offset again; what it moved by since the last time is the error of the stamps between."""
        now = take_anchor(_REFRESH_TRIES)
        moved = abs(now.offset_ns - self.offset_ns)
        self.worst_error_ns = max(self.worst_error_ns, now.error_ns, moved)
        self.offset_ns = now.offset_ns
        self.error_ns = now.error_ns
        self.drift_ns = now.offset_ns - self.anchor.offset_ns

    def watch(self, sock: socket) -> None:
        """Ask the kernel to stamp what `sock` receives."""
        if self.kernel:
            sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def epoch_ns(self, monotonic_ns: int) -> int:
        return monotonic_ns + self.anchor.offset_ns


now_ns: Final = time.monotonic_ns
