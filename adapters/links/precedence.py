"""Processes that must not wait for the workers whose bytes they carry."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_NICENESS: Final = -15


def take_precedence(pid: int) -> str:
    """Raise the priority of a process, the leader of its session, where this user may; answers its niceness.

    Linux shares the CPU among sessions first (autogroup), and a process's own niceness counts only inside its
    session: the session's has to be raised as well.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS), encoding="ascii")
    return str(os.getpriority(os.PRIO_PROCESS, pid))
