"""The middle of the uml driver: the kernel of a user-mode-linux guest between two taps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pyroute2 import IPRoute

from adapters.links.kernel import control, ports
from adapters.links.kernel.control import Count, Counted, Done, Join, Order, PowerOff, Report, Shape
from adapters.links.messages import Refused
from adapters.links.precedence import take_precedence
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
_REPEAT_S: Final = 0.2
_TAPS: Final = ("tap_a", "tap_b", "tap_c")
"""To A, to B, and the wire between agent and guest."""

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
        self._number = 0
        self._directory = tempfile.mkdtemp(prefix="pddbench-uml-")
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, a: Namespace, b: Namespace) -> None:
        # Started in A, its taps are born there, unnoticed by the host's network.
        self._process = await a.do(self._spawn)
        take_precedence(self._process.pid)
        self.processes = {"guest": self._process.pid}
        console = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(console), self._process.stdout
        )
        try:
            async with asyncio.timeout(_BOOT_TIMEOUT_S):
                self.kernel = await _booted(console)
        except TimeoutError:
            raise LinkError(f"the guest has not booted within {_BOOT_TIMEOUT_S:g} s") from None
        self._tasks.append(asyncio.create_task(_log(console)))
        await a.do(_move, _TAPS[1], b.descriptor)
        await self._connect(a)
        await a.do(ports.end_up, "A", _TAPS[0])
        await b.do(ports.end_up, "B", _TAPS[1])
        # Only now: a port that joins before the host's end is up often passes no traffic.
        await self._ask(Join(), Done)
        self._tasks.append(asyncio.create_task(self._keep_alive()))

    async def shape(self, profile: LinkProfile, limit_packets: tuple[int, int]) -> None:
        await self._ask(Shape(profile.a_to_b, profile.b_to_a, limit_packets), Done)

    async def count(self) -> tuple[Counters, Counters]:
        counted = await self._ask(Count(), Counted)
        return counted.a_to_b, counted.b_to_a

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._process is not None:
            with contextlib.suppress(LinkError):
                if self._wire is not None:
                    await self._ask(PowerOff(), Done)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _POWER_OFF_TIMEOUT_S)
            # The guest's helper processes outlive a killed guest: the whole group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._wire is not None:
            self._wire.close()
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

    async def _connect(self, a: Namespace) -> None:
        """The agent's own namespace, in which its main thread is, has nothing but its end of the wire."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            await a.do(_move, _TAPS[2], own)
        finally:
            os.close(own)
        await asyncio.to_thread(ports.control_up, _TAPS[2], control.AGENT)
        self._wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._wire.setblocking(False)
        self._wire.connect((control.GUEST, control.PORT))

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_KEEP_ALIVE_S)
            # Slow is not gone; that the guest is gone, the next order will tell.
            with contextlib.suppress(LinkError):
                await self.count()

    async def _ask(self, order: Order, kind: type[R]) -> R:
        async with self._turn:
            self._number += 1
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    report = await self._answer(control.encode(self._number, order))
            except TimeoutError:
                raise LinkError(f"the guest said nothing for {_ANSWER_TIMEOUT_S:g} s") from None
        if isinstance(report, Refused):
            raise LinkError(report.error)
        assert isinstance(report, kind), report
        return report

    async def _answer(self, order: bytes) -> Report:
        assert self._wire is not None
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(self._wire, order)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPEAT_S):
                    while True:
                        number, report = control.decode_report(
                            await loop.sock_recv(self._wire, control.MAX_BYTES)
                        )
                        # An answer that came after its order was repeated comes once more.
                        if number == self._number:
                            return report


async def _booted(console: asyncio.StreamReader) -> str:
    """The guest's kernel, once it says that it is ready."""
    while line := await console.readline():
        if line.startswith(control.BOOTED):
            return line.removeprefix(control.BOOTED).decode().strip()
        _note(line)
    raise LinkError("the guest ended while it booted")


async def _log(console: asyncio.StreamReader) -> None:
    while line := await console.readline():
        _note(line)


def _note(line: bytes) -> None:
    sys.stderr.write(f"guest: {line.decode(errors='replace')}")
    sys.stderr.flush()


def _move(interface: str, namespace: int) -> None:
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=interface)
        netlink.link("set", index=index, net_ns_fd=namespace)
