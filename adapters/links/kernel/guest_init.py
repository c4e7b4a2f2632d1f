"""Init of the user-mode-linux guest: a bridge between two taps, shaped, and nothing else.

The guest sees the host's file system read-only, so this is the host's Python and the same shaper. It powers
the guest off when its agent is gone, so that a guest never outlives its agent for long.
"""

from __future__ import annotations

import os
import sys
import traceback

from adapters.links.kernel.guest_modules import load
from adapters.links.kernel.syscalls import mount, power_off


def main() -> None:
    try:
        mount("proc", "/proc", "proc")
        mount("sys", "/sys", "sysfs")
        load()
        # Else a flood of packets keeps the orders waiting for seconds.
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        # Only now: pyroute2 reads /proc when it is imported.
        from adapters.links.kernel.guest_serving import serve  # noqa: PLC0415

        serve(int(sys.argv[1]), float(sys.argv[2]))
    except BaseException:  # noqa: BLE001 - an init that raises is a kernel panic; this is told instead
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        power_off()


if os.getpid() != 1:
    sys.exit("guest_init is the init of a user-mode-linux guest")
main()
