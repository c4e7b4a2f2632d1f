"""Which module measures which experiments."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.targets import Findings

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "harness.sim.reproduce.latency": ("E1", "E3", "E7"),
    "harness.sim.reproduce.handoff": ("E2",),
    "harness.sim.reproduce.economy": ("E4",),
    "harness.sim.reproduce.bandwidth": ("E5",),
    "harness.sim.reproduce.wan_test": ("E6",),
    "harness.sim.reproduce.bathtub": ("E8",),
    "harness.sim.reproduce.collapse": ("M10",),
}


def measure(
    experiments: tuple[str, ...], calibration: Calibration, effort: Effort
) -> Iterator[tuple[tuple[str, ...], Findings]]:
    """Run what these experiments need, one module after another; each uses all cores it is given."""
    for module, of_module in MODULES.items():
        wanted = tuple(e for e in of_module if e in experiments)
        if wanted:
            findings: Findings = importlib.import_module(module).measure(calibration, effort)
            yield wanted, findings
