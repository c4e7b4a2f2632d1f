"""A process of a run, seen from the runner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.experiment.config import ConfigError
from harness.experiment.failure import RunFailedError
from harness.experiment.processes.lifeline import REFUSED

_STOP_S: Final = 5.0
_LOG_TAIL_BYTES: Final = 4096


class Child:
    """Started in a session of its own, so that Ctrl-C reaches the runner only and it decides the order."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, command: Sequence[str], *, log: Path, config: bytes | None) -> Child:
        """Start `command`; with `config`, stdin carries it and then stays open as the lifeline."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE if config is not None else DEVNULL,
                stdout=PIPE,
                stderr=errors,
                start_new_session=True,
                limit=1 << 20,
            )
        if config is not None:
            assert process.stdin is not None
            process.stdin.write(config + b"\n")
            try:
                with contextlib.suppress(ConnectionError):  # it has ended; `ready` says with which words
                    await process.stdin.drain()
            except asyncio.CancelledError:
                process.kill()  # nobody else knows of it yet
                raise
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self, timeout_s: float) -> Any:
        """The 'ready' line. When it does not come, the last line of the log as a ConfigError if the child
        refused its configuration, else as a RunFailedError."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self.process.stdout.readline()
                if not line:
                    await self.process.wait()
        except TimeoutError:
            raise RunFailedError(f"{self.name}: not ready within {timeout_s:g} s; see {self._log}") from None
        if self.process.returncode == REFUSED:
            raise ConfigError(f"{self.name}: {self.last_words()}")
        if not line:
            raise RunFailedError(f"{self.name}: ended at start: {self.last_words()}")
        return msgspec.json.decode(line)

    async def lines(self) -> Any:
        """The lines of stdout until it ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            yield line

    def last_words(self) -> str:
        """The last line of the log, for a one-line error."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            said = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return said[-1].strip() if said else f"exit code {self.process.returncode}, nothing on stderr"

    async def stop(self) -> None:
        """End it: lifeline first, then SIGTERM, then SIGKILL to its group. Idempotent."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if self.process.returncode is not None:
                break
            if sign is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, sign)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await self.process.wait()
