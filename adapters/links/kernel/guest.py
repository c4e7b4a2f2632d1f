"""The middle of the uml driver: the kernel of a user-mode-linux guest between two taps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pyroute2 import IPRoute

from adapters.links.kernel import ports
from adapters.links.kernel.console import (
    Booted,
    Count,
    Counted,
    Done,
    Join,
    Order,
    Report,
    Shape,
    decode_report,
    encode,
)
from adapters.links.messages import Refused
from harness.link import LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.links.kernel.namespace import Namespace
    from adapters.links.kernel.shaper import Counters
    from harness.link import LinkProfile

PROGRAM: Final = "/usr/bin/linux.uml"
INIT: Final = "adapters.links.kernel.guest_init"

_ROOT: Final = Path(__file__).resolve().parents[3]
_BOOT_TIMEOUT_S: Final = 60.0
_ANSWER_TIMEOUT_S: Final = 8.0
_POWER_OFF_TIMEOUT_S: Final = 5.0
_KEEP_ALIVE_S: Final = 2.0
_TAPS: Final = ("tap_a", "tap_b")

R = TypeVar("R", bound=Report)


def command(*arguments: str, devices: list[str], directory: str, memory: str = "512M") -> list[str]:
    """A guest with the host's files, read-only, and `python -m arguments` as its init."""
    return [
        PROGRAM,
        f"mem={memory}",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "con=null",
        "con0=fd:0,fd:1",
        "quiet",
        f"init={sys.executable}",
        f"uml_dir={directory}",
        "umid=guest",
        *devices,
        # What the kernel does not know it hands to init: with an equals sign as environment.
        f"PYTHONPATH={_ROOT}",
        "PYTHONDONTWRITEBYTECODE=1",
        "--",
        "-m",
        *arguments,
    ]


class GuestMiddle:
    """An `adapters.links.kernel.middle.Middle`."""

    def __init__(self, seed: int) -> None:
        self.kernel = "not booted"
        # The guest is one process of a host that has others to run: its timers are late by milliseconds.
        self.burst_ms = 10.0
        self.processes: Mapping[str, int] = {}
        self._seed = seed
        self._turn = asyncio.Lock()
        self._owed = 1
        """Reports still to come: the first, unasked, says that the guest has booted."""
        self._directory = tempfile.mkdtemp(prefix="pddbench-uml-")
        self._process: subprocess.Popen[bytes] | None = None
        self._keeping_alive: asyncio.Task[None] | None = None

    async def start(self, a: Namespace, b: Namespace) -> None:
        # Started in A, its taps are born there, unnoticed by the host's network.
        self._process = await a.do(self._spawn)
        self.processes = {"guest": self._process.pid}
        await self._connect(self._process)
        booted = await self._read(Booted, _BOOT_TIMEOUT_S)
        self.kernel = booted.kernel
        await a.do(_move, _TAPS[1], b.descriptor)
        await a.do(ports.end_up, "A", _TAPS[0])
        await b.do(ports.end_up, "B", _TAPS[1])
        # Only now: a port that joins before the host's end is up often passes no traffic.
        await self._ask(Join(), Done)
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    async def shape(self, profile: LinkProfile, limit_packets: tuple[int, int]) -> None:
        await self._ask(Shape(profile.a_to_b, profile.b_to_a, limit_packets), Done)

    async def count(self) -> tuple[Counters, Counters]:
        counted = await self._ask(Count(), Counted)
        return counted.a_to_b, counted.b_to_a

    async def close(self) -> None:
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._writer.write(b"\n")
            ended = asyncio.to_thread(self._process.wait, _POWER_OFF_TIMEOUT_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await ended
            # The guest's helper processes outlive a killed guest: the whole group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._writer.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        devices = [
            f"vec{i}:transport=tap,ifname={tap},depth=64,vec=1,gro=0,mtu={ports.MTU}"
            for i, tap in enumerate(_TAPS)
        ]
        return subprocess.Popen(
            command(INIT, str(self._seed), str(self.burst_ms), devices=devices, directory=self._directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    async def _connect(self, process: subprocess.Popen[bytes]) -> None:
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), process.stdout)
        self._writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_KEEP_ALIVE_S)
            # Slow is not gone; that the guest is gone, the next order will tell.
            with contextlib.suppress(LinkError):
                await self.count()

    async def _ask(self, order: Order, kind: type[R]) -> R:
        async with self._turn:
            self._writer.write(encode(order) + b"\n")
            self._owed += 1
            return await self._read(kind, _ANSWER_TIMEOUT_S)

    async def _read(self, kind: type[R], timeout_s: float) -> R:
        """The answer to the latest order; late answers to earlier ones, given up, are passed over."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    report = await self._report()
                    self._owed -= 1
                    if self._owed == 0:
                        break
        except TimeoutError:
            raise LinkError(f"the guest said nothing for {timeout_s:g} s") from None
        if isinstance(report, Refused):
            raise LinkError(report.error)
        assert isinstance(report, kind), report
        return report

    async def _report(self) -> Report:
        while line := await self._reader.readline():
            if line.startswith(b"{"):
                return decode_report(line)
            sys.stderr.write(f"guest: {line.decode(errors='replace')}")
            sys.stderr.flush()
        raise LinkError("the guest ended")


def _move(interface: str, namespace: int) -> None:
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=interface)
        netlink.link("set", index=index, net_ns_fd=namespace)
