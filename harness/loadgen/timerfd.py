"""Linux timerfd on the absolute monotonic clock (the os module has it from Python 3.13 on)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_FLAGS: Final = 0o2000000 | 0o4000  # TFD_CLOEXEC | TFD_NONBLOCK
_ABSTIME: Final = 1


class TimerFd:
    """A descriptor that is readable from `due_ns` on until it is armed again."""

    def __init__(self) -> None:
        self._libc: Final = ctypes.CDLL(None, use_errno=True)
        self.fd: Final[int] = self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._spec: Final = (ctypes.c_long * 4)()
        self.due_ns = 0

    def arm(self, due_ns: int) -> None:
        """0: never. An instant that has passed makes it readable at once."""
        if due_ns == self.due_ns and (not due_ns or due_ns > time.monotonic_ns()):
            return  # armed so already, and not fired yet
        self.due_ns = due_ns
        spec = self._spec
        spec[2], spec[3] = divmod(due_ns, 1_000_000_000)
        if self._libc.timerfd_settime(self.fd, _ABSTIME, spec, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)
