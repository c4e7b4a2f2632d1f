"""`python enter.py [--user PATH] --net PATH COMMAND…`: run a command inside a link's namespaces.

Run by its file name, without the package and without site-packages: it is in front of every worker.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="enter")
    parser.add_argument("--user")
    parser.add_argument("--net", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    libc = ctypes.CDLL(None, use_errno=True)
    for path in (options.user, options.net):
        if path is not None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if libc.setns(descriptor, 0) != 0:
                sys.exit(f"enter: {path}: {os.strerror(ctypes.get_errno())}")
    # A worker of a killed runner goes with it, also one that is stopped and cannot see its input end.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execvp(options.command[0], options.command)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.exit(f"enter: {options.command[0]}: {error.strerror}")


main(sys.argv[1:])
