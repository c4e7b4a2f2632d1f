"""Boots the guest, shows what pytest prints there, and ends with its exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from adapters.links.kernel.guest import PROGRAM, command
from tests.links.uml_guest.init import RESULT

TIMEOUT_S = 600
DEFAULT = ["tests/links/test_netem.py"]


def main(arguments: list[str]) -> int:
    if not Path(PROGRAM).exists():
        print(f"{PROGRAM}: not found; install the Debian package user-mode-linux", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="pddbench-uml-") as directory:
        boot = command("tests.links.uml_guest.init", *arguments, devices=[], directory=directory, memory="1G")
        guest = subprocess.Popen(
            boot,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        # The group: a guest that is killed leaves its helper processes.
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(guest.pid, signal.SIGKILL))
        signal.alarm(TIMEOUT_S)
        status = None
        try:
            assert guest.stdout is not None
            for line in guest.stdout:
                if line.startswith(RESULT):
                    status = int(line.removeprefix(RESULT))
                    break
                print(line, end="", flush=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.wait(10)
        finally:
            signal.alarm(0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(guest.pid, signal.SIGKILL)
            guest.wait()
    if status is None:
        print(f"the guest ended without a result (within {TIMEOUT_S} s)", file=sys.stderr)
        return 1
    return status


sys.exit(main(sys.argv[1:] or DEFAULT))
