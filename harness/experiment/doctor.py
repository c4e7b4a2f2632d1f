"""What this machine can do: found by trying, told in one line each."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Final

import msgspec
import psutil

from adapters.links import DRIVERS, probe
from harness.clock import take_anchor
from harness.faults.ledger import default_folder

_PACKAGES: Final = ("harness", "workloads", "reports", "adapters")
_MIN_MEMORY_BYTES: Final = 2 << 30
_ENGINES: Final = {
    # engine: (package, what to install, whether a first benchmark needs it)
    "llamacpp": ("xllamacpp", "pip install xllamacpp (it is among pddbench's own requirements)", True),
    "vllm": ("vllm", "make vllm (its own environment, several GB)", False),
}


class Item(msgspec.Struct, frozen=True):
    area: str
    name: str
    usable: bool
    note: str
    needed: bool = False
    """Without it no benchmark runs."""


class Report(msgspec.Struct, frozen=True):
    items: tuple[Item, ...]
    link_driver: str
    link_reason: str
    """Why `--link auto` takes it, with what is in the way of better ones."""

    @property
    def able(self) -> bool:
        return all(item.usable for item in self.items if item.needed)


async def examine() -> Report:
    findings = await asyncio.gather(*(probe(driver) for driver in DRIVERS))
    taken = next(finding for finding in findings if finding.usable)
    better = [f"{f.driver} would be better, but: {f.reason}" for f in findings[: findings.index(taken)]]
    links = [Item("link", f.driver, f.usable, f.reason) for f in findings]
    return Report(
        (*_machine(), *links, *_engines(), _ledgers()), taken.driver, "; ".join([taken.reason, *better])
    )


def _machine() -> list[Item]:
    roots = {
        name: Path(spec.origin).parents[1] for name in _PACKAGES if (spec := _spec(name)) and spec.origin
    }
    one = len(set(roots.values())) == 1
    where = str(roots["harness"]) if one else f"from several places: {roots}; use an environment of its own"
    memory = psutil.virtual_memory()
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    kernel_stamps = sys.platform == "linux"
    return [
        Item("machine", "python", sys.version_info >= (3, 11), platform.python_version(), needed=True),
        Item("machine", "packages", one, where, needed=True),
        Item(
            "machine",
            "system",
            usable=True,
            note=f"{platform.system()} {platform.release()} {platform.machine()}",
        ),
        Item("machine", "cores", cores >= 2, f"{cores}; the load generator and the workers want 2 at least"),
        Item("machine", "load", load < cores, f"{load:.1f} on {cores} cores; measure on a quiet machine"),
        Item(
            "machine",
            "memory",
            memory.available >= _MIN_MEMORY_BYTES,
            f"{memory.available / 2**30:.1f} GiB available",
        ),
        Item(
            "machine",
            "receive stamps",
            kernel_stamps,
            "by the kernel (SO_TIMESTAMPNS)" if kernel_stamps else "by the process: later on a busy machine",
        ),
        Item("machine", "clock", usable=True, note=f"epoch anchor known to ± {take_anchor().error_ns} ns"),
    ]


def _engines() -> list[Item]:
    items = [
        Item(
            "engine",
            name,
            found := _spec(package) is not None,
            f"{package} is installed" if found else f"{package} is not installed: {install}",
            needed=needed,
        )
        for name, (package, install, needed) in _ENGINES.items()
    ]
    return [*items, Item("engine", "emulated", usable=True, note="needs nothing")]


def _spec(package: str) -> importlib.machinery.ModuleSpec | None:
    return importlib.util.find_spec(package)


def _ledgers() -> Item:
    """Of runs that are under way or were killed; the next run sweeps those of the killed."""
    folder = default_folder()
    count = len(list(folder.glob("*.jsonl")))
    note = (
        f"{count} runs under way or killed have ledgers in {folder}; the next run ends what the killed left"
    )
    return Item("runs", "left behind", usable=True, note=note if count else "nothing")
