"""The search: every combination screened, the most promising ones simulated for their highest rate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec
import numpy as np

from harness.sim.planning.arena import Arena
from harness.sim.planning.candidate import Candidate, Evaluation, Prices, Slo
from harness.sim.planning.estimate import estimate
from harness.sim.planning.executor import Executor

_HIGHEST: Final = 1.3
"""Upper bound of the simulated rate, over the estimate. The lower one is 0, so that every answer was seen."""


class Space(msgspec.Struct, frozen=True):
    """What may be combined. Worker sizes are fixed, numbers vary; or the other way about."""

    prefill: tuple[tuple[int, int], ...]
    """(workers, devices each)."""
    relay: tuple[tuple[int, int], ...]
    main: tuple[tuple[int, int], ...]
    modes: tuple[str, ...]
    relay_bounds_ms: tuple[float, ...]
    lines_gbit: tuple[float, ...]

    def candidates(self) -> Iterator[Candidate]:
        """Every combination; without relay workers there is only the naive mode, and no bound."""
        for (pw, pd), (rw, rd), (mw, md), line in itertools.product(
            self.prefill, self.relay, self.main, self.lines_gbit
        ):
            if rw == 0:
                yield Candidate(pw, pd, 0, 0, mw, md, "xdc", 0.0, line)
                continue
            for mode, bound in itertools.product(self.modes, self.relay_bounds_ms):
                yield Candidate(pw, pd, rw, rd, mw, md, mode, bound, line)


class SearchEffort(msgspec.Struct, frozen=True):
    """Candidates kept after screening; requests and seeds of each simulation; halvings of the rate."""

    keep: int = 12
    requests: int = 3000
    seeds: int = 1
    halvings: int = 5


class Task(msgspec.Struct, frozen=True):
    """One candidate to be simulated, around its estimated rate."""

    candidate: Candidate
    estimated: float


def screen(arena: Arena, space: Space, prices: Prices, slo: Slo, keep: int) -> list[Task]:
    """The best by estimated BCR, at most two of one cluster (they differ in mode and bound only).

    The estimate knows no latency, which is all that a relay is for: clusters without one get a quarter of
    the places at most, or they would take them all by being cheaper."""
    traffic = arena.traffic()
    rated = []
    rates: dict[tuple[int, ...], float] = {}
    for candidate in space.candidates():
        hardware = (
            candidate.prefill_workers,
            candidate.prefill_devices,
            candidate.relay_workers,
            candidate.relay_devices,
            candidate.main_workers,
            candidate.main_devices,
            round(candidate.line_gbit),
        )
        if hardware not in rates:
            rates[hardware] = estimate(arena, candidate, traffic, slo)
        rated.append((rates[hardware] / candidate.cost(prices), rates[hardware], candidate))
    rated.sort(key=lambda r: (-r[0], r[2]))
    kept: list[Task] = []
    seen: dict[tuple[int, int, float], int] = {}
    naive_left = max(1, keep // 4)
    for _, rate, candidate in rated:
        if not candidate.relay_workers:
            if not naive_left:
                continue
            naive_left -= 1
        key = (candidate.a_devices, candidate.b_devices, candidate.line_gbit)
        if seen.get(key, 0) < 2:
            seen[key] = seen.get(key, 0) + 1
            kept.append(Task(candidate, rate))
        if len(kept) == keep:
            break
    return kept


def highest_rate(arena: Arena, slo: Slo, effort: SearchEffort, task: Task) -> float:
    """Requests a second at which the SLO's share of the requests still meets it, by simulation."""
    low, high = 0.0, _HIGHEST * task.estimated
    for _ in range(effort.halvings):
        middle = (low + high) / 2
        if attained(arena, slo, effort, task.candidate, middle) >= slo.share:
            low = middle
        else:
            high = middle
    return low


def attained(arena: Arena, slo: Slo, effort: SearchEffort, candidate: Candidate, rate: float) -> float:
    """Share of the requests that meet the SLO; failed ones do not."""
    met = total = 0
    for seed in range(1, effort.seeds + 1):
        tally = arena.run(candidate, rate, effort.requests, seed)
        tpot = tally.column("tpot_s")
        good = (tally.column("ttft_s") <= slo.ttft_s) & ((tpot * 1e3 <= slo.tpot_ms) | np.isnan(tpot))
        met += int(good.sum())
        total += len(tally) + tally.failed
    return met / total if total else 0.0


def evaluate(
    arena: Arena, tasks: list[Task], prices: Prices, slo: Slo, effort: SearchEffort, executor: Executor
) -> Iterator[Evaluation]:
    """Simulate the tasks, as they come."""
    for index, rate in executor.map(partial(highest_rate, arena, slo, effort), tasks):
        candidate = tasks[index].candidate
        yield Evaluation(candidate, rate, candidate.cost(prices))
