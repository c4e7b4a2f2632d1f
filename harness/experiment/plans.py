"""Replay plans of a run: one a workload and repetition, shared by the cells that replay the same.

Each repetition has its own salt: fresh token ids in the same structure, so that nothing is warm by
accident. Cells of one repetition share the ids (each starts with cold caches), so that their answers
can be compared token by token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harness.engine import EngineInfo
from harness.experiment.config import Cell
from harness.experiment.topology import workers_of
from harness.policy.roles import Role
from workloads.formats import open_trace
from workloads.replay import PlanHeader, ReplayPlan, make_plan, write_plan
from workloads.vocabulary import Vocabulary

_PREFILLING: Final = (Role.PREFILL, Role.COLOCATED)


def plan_of(
    cell: Cell, rep: int, *, seed: int, vocabulary: Vocabulary, max_context_tokens: int
) -> ReplayPlan:
    """What a repetition of a cell replays, live or simulated; `max_context_tokens`: what the engine holds.

    TraceError when the trace cannot be replayed so.
    """
    workload = cell.workload
    trace = open_trace(
        workload.source,
        format=workload.format,
        seed=seed,
        sessions=workload.sessions,
        turns=workload.turns,
    )
    return make_plan(
        trace,
        vocabulary=vocabulary,
        token_scale=workload.token_scale,
        time_scale=workload.time_scale,
        seed=seed,
        salt=f"rep{rep}",
        max_context_tokens=workload.max_context_tokens or max_context_tokens,
        cache_tokens=cache_tokens(cell),
    )


def cache_tokens(cell: Cell) -> int | None:
    """Size of the cache that the cell's prefix hits are expected of; None: it holds everything."""
    if cell.workload.cache_tokens is not None or cell.cluster.capacity_tokens is None:
        return cell.workload.cache_tokens
    return cell.cluster.capacity_tokens * sum(slot.role in _PREFILLING for slot in workers_of(cell))


class PlanShelf:
    """Makes each plan once. Blocking: call it in a thread."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._made: dict[bytes, tuple[Path, PlanHeader]] = {}

    def plan(self, cell: Cell, rep: int, engine: EngineInfo) -> tuple[Path, PlanHeader]:
        """The plan's file and header. TraceError when the trace cannot be replayed on this engine."""
        sizes = (cache_tokens(cell), engine.vocab_size, engine.max_context_tokens)
        key = msgspec.msgpack.encode((cell.workload, rep, *sizes))
        if key not in self._made:
            plan = plan_of(
                cell,
                rep,
                seed=self._seed,
                vocabulary=Vocabulary(engine.first_normal_id, engine.vocab_size),
                max_context_tokens=engine.max_context_tokens,
            )
            path = self._folder / f"rep{rep}-{len(self._made)}.plan"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_plan(plan, path)
            self._made[key] = (path, plan.header)
        return self._made[key]
