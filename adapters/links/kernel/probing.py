"""`python -m adapters.links.kernel.probing netem|uml`: can this kernel do it? Prints a `Finding`."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Final

import msgspec

from adapters.links.probing import Finding
from harness.link import LinkError

_INSTALL_UML: Final = "install the package user-mode-linux (Debian: apt install user-mode-linux)"


def main(driver: str) -> Finding:
    try:
        reason = _netem() if driver == "netem" else _uml()
    except LinkError as error:
        return Finding(driver, usable=False, reason=str(error))
    return Finding(driver, usable=True, reason=reason)


def _netem() -> str:
    if sys.platform != "linux":
        raise LinkError(f"needs Linux; this is {platform.system()}")
    from adapters.links.kernel import ports  # noqa: PLC0415 - Linux only
    from adapters.links.kernel.namespace import may_make_namespaces  # noqa: PLC0415
    from adapters.links.kernel.shaper import Shaper  # noqa: PLC0415

    privilege = may_make_namespaces()
    # In the empty namespace that this process is in now.
    ports.loopback_up()
    Shaper("lo", mtu=ports.MTU, burst_ms=1, seed=0)
    return f"sch_netem and sch_tbf of Linux {platform.release()}, as {privilege}"


def _uml() -> str:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise LinkError(f"needs Linux on x86_64; this is {platform.system()} on {platform.machine()}")
    from adapters.links.kernel.guest import PROGRAM  # noqa: PLC0415 - Linux only
    from adapters.links.kernel.guest_modules import MODULES  # noqa: PLC0415
    from adapters.links.kernel.namespace import may_make_namespaces  # noqa: PLC0415

    if not Path(PROGRAM).exists() or not Path(MODULES).exists():
        raise LinkError(f"{PROGRAM} or {MODULES} is not there; {_INSTALL_UML}")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise LinkError("/dev/net/tun is not there or not writable; load the module tun or run as root")
    privilege = may_make_namespaces()
    release = ", ".join(sorted(path.name for path in Path(MODULES).iterdir()))
    return f"sch_netem and sch_tbf of a user-mode-linux guest ({release}), as {privilege}"


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main(sys.argv[1])))
