"""A network namespace that lives as long as this process and those inside it."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from adapters.links.kernel.syscalls import CLONE_NEWNET, CLONE_NEWUSER, unshare
from harness.link import LinkError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT_S: Final = 10.0


def may_make_namespaces() -> str:
    """Make this process, still of one thread, able to make namespaces: as it is, or in a user namespace.

    Answers "root" or "user namespace". LinkError when neither is allowed.
    """
    try:
        unshare(CLONE_NEWNET)
    except PermissionError:
        pass
    else:
        return "root"
    uid, gid = os.getuid(), os.getgid()
    try:
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
        # Both before the thread is root inside: the kernel allows an unprivileged process only this much.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
    except OSError as error:
        raise LinkError(
            f"network namespaces: neither as this user nor in a user namespace ({error.strerror}); "
            "run as root or allow unprivileged user namespaces"
        ) from None
    return "user namespace"


class Namespace:
    """One thread stays inside; `do` runs a function there. Sockets and processes made there belong to it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.descriptor: int = self._thread.submit(_enter_new).result(_TIMEOUT_S)

    @property
    def path(self) -> str:
        """For setns, from any process of this user."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))
        return await asyncio.wait_for(work, _TIMEOUT_S)

    def close(self) -> None:
        """It goes when the last process inside has ended."""
        self._thread.shutdown()
        os.close(self.descriptor)


def _enter_new() -> int:
    unshare(CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
