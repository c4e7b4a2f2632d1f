"""Fitting: moves the free parameters of one group, and nothing else, to meet the targets declared as fitted.

A pattern search over the parameters' bounds: derivative-free, deterministic, and bounded by a number of
simulations. The loss is the sum of squared logarithms of ours over theirs, over the fitted targets alone;
held-out targets are never looked at, only reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.experiments import measure
from harness.sim.reproduce.targets import TARGETS, Target

GROUPS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    # experiment: (groups whose free parameters move, experiments whose fitted targets count)
    "E1": (("latency", "latency_line"), ("E1",)),
    "E6": (("wan_test",), ("E6",)),
}
_FIRST_STEP: Final = 0.2
_LAST_STEP: Final = 0.02


class FitStep(msgspec.Struct, frozen=True):
    """One point that was tried."""

    values: dict[str, float]
    loss: float
    best: bool


def fit(
    experiment: str, calibration: Calibration, effort: Effort, evaluations: int
) -> Iterator[tuple[FitStep, Calibration]]:
    """Yield every point tried, with the best calibration so far."""
    moved, judged = GROUPS[experiment]
    free = {name: q for name, q in calibration.free().items() if name.partition(".")[0] in moved}
    targets = tuple(t for t in TARGETS if t.experiment in judged and t.fitted)

    def loss_of(trial: Calibration) -> float:
        values: dict[str, float] = {}
        for _, findings in measure((experiment,), trial, effort):
            values |= findings.values
        return loss(targets, values)

    yield from _search(
        calibration, {n: (q.low or 0.0, q.high or 0.0) for n, q in free.items()}, loss_of, evaluations
    )


def loss(targets: tuple[Target, ...], values: dict[str, float]) -> float:
    return sum(math.log(max(values[t.key], 1e-9) / t.value) ** 2 for t in targets)


def _search(
    start: Calibration,
    bounds: dict[str, tuple[float, float]],
    loss_of: Callable[[Calibration], float],
    evaluations: int,
) -> Iterator[tuple[FitStep, Calibration]]:
    best, left = start, evaluations - 1
    lowest = loss_of(best)
    yield FitStep({name: best(name) for name in bounds}, lowest, best=True), best
    step = _FIRST_STEP
    while left > 0 and step >= _LAST_STEP:
        improved = False
        for name, (low, high) in bounds.items():
            for direction in (1.0, -1.0):
                if left <= 0:
                    return
                value = min(high, max(low, best(name) + direction * step * (high - low)))
                if value == best(name):
                    continue
                trial = best.changed({name: value})
                found = loss_of(trial)
                left -= 1
                better = found < lowest
                if better:
                    best, lowest, improved = trial, found, True
                yield FitStep({n: trial(n) for n in bounds}, found, best=better), best
                if better:
                    break
        if not improved:
            step /= 2
