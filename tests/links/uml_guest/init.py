"""The guest's init: the kernel as the netem driver needs it, then pytest, then power off."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

from adapters.links.kernel.guest_modules import load
from adapters.links.kernel.syscalls import mount, power_off

RESULT = "guest-result "
SCRATCH = "/run"


def run(arguments: list[str]) -> int:
    mount("proc", "/proc", "proc")
    mount("sys", "/sys", "sysfs")
    # The host's files are there read-only; not over /tmp, where the checkout may lie.
    mount("tmp", SCRATCH, "tmpfs")
    load("drivers/net/veth")
    os.chdir(Path(__file__).parents[3])
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "netem",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rA",
        *arguments,
    ]
    return subprocess.run(
        pytest, check=False, stdin=subprocess.DEVNULL, env=os.environ | {"HOME": SCRATCH, "TMPDIR": SCRATCH}
    ).returncode


if __name__ == "__main__":
    status = 1
    try:
        # The guest kernel appends an argument of its own to the command line, and so to init's.
        status = run([argument for argument in sys.argv[1:] if not argument.startswith("console=")])
    except BaseException:  # an init that raises is a kernel panic
        traceback.print_exc()
    finally:
        print(f"\n{RESULT}{status}", flush=True)
        power_off()
