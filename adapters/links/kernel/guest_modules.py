"""The modules a guest's kernel needs to bridge and shape, loaded without a module tool."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

from adapters.links.kernel.syscalls import load_module

MODULES: Final = "/usr/lib/uml/modules"
_LOADED: Final = {
    # The bridge needs symbols of ipv6, but a boot with it enabled often passes no traffic.
    "net/ipv6/ipv6": "disable=1",
    "net/bridge/bridge": "",
    "net/sched/sch_netem": "",
    "net/sched/sch_tbf": "",
}


def load(*more: str) -> None:
    """These and `more` (below the modules' `kernel/`, without `.ko`), each after what it requires."""
    base = Path(MODULES, platform.release())
    requirements = dict(line.split(":") for line in (base / "modules.dep").read_text().splitlines())
    for name, parameters in {**_LOADED, **dict.fromkeys(more, "")}.items():
        path = f"kernel/{name}.ko"
        for required in reversed(requirements[path].split()):
            load_module(str(base / required))
        load_module(str(base / path), parameters)
