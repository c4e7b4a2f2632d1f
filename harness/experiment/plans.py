"""Replay plans of a run: one a workload and repetition, shared by the cells that replay the same.

Each repetition has its own salt: fresh token ids in the same structure, so that nothing is warm by
accident. Cells of one repetition share the ids (each starts with cold caches), so that their answers
can be compared token by token.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.engine import EngineInfo
from harness.experiment.config import WorkloadConfig
from workloads.formats import open_trace
from workloads.replay import PlanHeader, make_plan, write_plan
from workloads.vocabulary import Vocabulary


class PlanShelf:
    """Makes each plan once. Blocking: call it in a thread."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._made: dict[bytes, tuple[Path, PlanHeader]] = {}

    def plan(self, workload: WorkloadConfig, rep: int, engine: EngineInfo) -> tuple[Path, PlanHeader]:
        """The plan's file and header. TraceError when the trace cannot be replayed on this engine."""
        key = msgspec.msgpack.encode((workload, rep, engine.vocab_size, engine.max_context_tokens))
        if key not in self._made:
            trace = open_trace(
                workload.source, format=workload.format, seed=self._seed, sessions=workload.sessions
            )
            plan = make_plan(
                trace,
                vocabulary=Vocabulary(engine.first_normal_id, engine.vocab_size),
                token_scale=workload.token_scale,
                time_scale=workload.time_scale,
                seed=self._seed,
                salt=f"rep{rep}",
                max_context_tokens=workload.max_context_tokens or engine.max_context_tokens,
            )
            path = self._folder / f"rep{rep}-{len(self._made)}.plan"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_plan(plan, path)
            self._made[key] = (path, plan.header)
        return self._made[key]
