"""What a run has started, on disk, so that the next start can end what a killed run left.

By recorded ids only: a process is ended when its pid *and* its start time match, with its group if it leads
one. Names and patterns are never looked at.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
import psutil

_WAIT_S: Final = 5.0
_SUFFIX: Final = ".jsonl"


class Recorded(msgspec.Struct, frozen=True):
    """A process by what makes it unmistakable: pids are given again, with another start."""

    name: str
    pid: int
    started: int


def default_folder() -> Path:
    """Of this user, the same for every run wherever it records."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "pddbench" / "ledgers"


class Ledger:
    """One run's file: its own process first, then each that it starts. Closing it in order removes it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{os.getpid()}-{time.time_ns()}{_SUFFIX}"
        # Under its name only with its first line: another run's sweep removes a ledger without a live runner.
        fresh = self._path.with_suffix(".new")
        self._file = fresh.open("ab")
        self.record("runner", os.getpid())
        fresh.rename(self._path)

    def record(self, name: str, pid: int) -> None:
        """Before anything else is done with the process. One that has ended already is not recorded."""
        started = _started(pid)
        if started is not None:
            self._file.write(msgspec.json.encode(Recorded(name, pid, started)) + b"\n")
            self._file.flush()

    def close(self) -> None:
        """All has been ended. Idempotent."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def sweep(folder: Path) -> list[Recorded]:
    """End what runs that are gone have left; answers the processes ended."""
    ended: list[Recorded] = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        # Nothing survives a boot, and start times count from it.
        entries = _read(path) if path.stat().st_mtime > psutil.boot_time() else []
        if entries and _alive(entries[0]):
            continue
        # In reverse order of their start, as an orderly end would have done it.
        ended += [entry for entry in reversed(entries[1:]) if _end(entry)]
        path.unlink(missing_ok=True)
    return ended


def _read(path: Path) -> list[Recorded]:
    entries = []
    for line in path.read_bytes().splitlines():
        # The last line of a killed run may be cut short.
        with contextlib.suppress(msgspec.DecodeError):
            entries.append(msgspec.json.decode(line, type=Recorded))
    return entries


def _started(pid: int) -> int | None:
    """Start time of a live process, in ticks since the boot where the kernel tells (no clock moves those), in
    hundredths of an epoch second elsewhere; None for one that is dead, reaped or not."""
    try:
        if sys.platform == "linux":
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            return None if fields[0] in "ZX" else int(fields[19])
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time() * 100)
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None


def _alive(entry: Recorded) -> bool:
    return _started(entry.pid) == entry.started


def _end(entry: Recorded) -> bool:
    """SIGKILL: it also ends what is stopped. True when there was something to end."""
    if not _alive(entry):
        return False
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(entry.pid) == entry.pid:
            os.killpg(entry.pid, signal.SIGKILL)
        else:
            os.kill(entry.pid, signal.SIGKILL)
    deadline = time.monotonic() + _WAIT_S
    while _alive(entry) and time.monotonic() < deadline:
        time.sleep(0.01)
    return True
