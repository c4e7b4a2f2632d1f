"""A whole plan: screened, simulated, ranked, and its sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from harness.sim.planning.arena import Arena
from harness.sim.planning.candidate import Candidate, Evaluation, Prices, Slo, pareto
from harness.sim.planning.estimate import estimate
from harness.sim.planning.executor import Executor
from harness.sim.planning.search import SearchEffort, Space, Task, evaluate, screen
from harness.sim.planning.sensitivity import Move, line_moves, premium_moves

_HIT_SHIFTS: Final = (-0.02, 0.02)


class PlanError(ValueError):
    """No plan can be made of what was asked; one line."""


class Plan(msgspec.Struct, frozen=True):
    """What the search found."""

    evaluations: list[Evaluation]
    """All that were simulated; the best benefit-cost ratio first."""
    front: list[Evaluation]
    baseline: Evaluation | None
    moves: list[Move]

    @property
    def best(self) -> Evaluation:
        return self.evaluations[0]


def make_plan(
    arena: Arena,
    space: Space,
    prices: Prices,
    slo: Slo,
    effort: SearchEffort,
    executor: Executor,
    *,
    baseline: Candidate | None = None,
    shifted: Callable[[float], Arena] | None = None,
    progress: Callable[[Evaluation], None] = lambda _: None,
) -> Plan:
    """Search `space`. `shifted` gives the arena at another hit rate, for the sensitivity.

    PlanError when no candidate meets the SLO at any rate."""
    tasks = screen(arena, space, prices, slo, effort.keep)
    if baseline is not None and all(task.candidate != baseline for task in tasks):
        tasks.append(Task(baseline, estimate(arena, baseline, arena.traffic(), slo)))
    tasks = [task for task in tasks if task.estimated > 0]
    if not tasks:
        raise PlanError("no candidate meets the TPOT bound even with one sequence; loosen it, or add devices")
    evaluations: list[Evaluation] = []
    for evaluation in evaluate(arena, tasks, prices, slo, effort, executor):
        evaluations.append(evaluation)
        progress(evaluation)
    evaluations.sort(key=lambda e: (-e.bcr, e.candidate))
    best = evaluations[0]
    moves = premium_moves(evaluations, prices) + line_moves(evaluations)
    if shifted is not None:
        moves += _hit_moves(best, shifted, prices, slo, effort, executor)
    chosen = next((e for e in evaluations if e.candidate == baseline), None)
    return Plan(evaluations, pareto(evaluations), chosen, moves)


def _hit_moves(
    best: Evaluation,
    shifted: Callable[[float], Arena],
    prices: Prices,
    slo: Slo,
    effort: SearchEffort,
    executor: Executor,
) -> list[Move]:
    """The best candidate simulated again with every hit a little lower or higher."""
    moves = []
    for shift in _HIT_SHIFTS:
        arena = shifted(shift)
        task = Task(best.candidate, estimate(arena, best.candidate, arena.traffic(), slo))
        for found in evaluate(arena, [task], prices, slo, effort, executor):
            what = f"every hit {100 * shift:+.0f} points"
            moves.append(Move(what, best.candidate, found.bcr, found.bcr / best.bcr - 1))
    return moves
