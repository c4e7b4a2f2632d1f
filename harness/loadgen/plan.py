"""The plan as this run replays it: read, and its session starts redrawn where the job says so."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness.loadgen.arrivals import start_offsets
from harness.loadgen.job import JobError
from workloads.replay import ReplayPlan, read_plan

if TYPE_CHECKING:
    from harness.loadgen.job import LoadJob


def read_plan_of(job: LoadJob) -> ReplayPlan:
    """All sessions of the run in the order of their starts. Raises JobError or the plan's own error."""
    if not job.plan.is_file():
        raise JobError(f"plan {job.plan}: no such file")
    plan = read_plan(job.plan)
    sessions = sorted(plan.sessions, key=lambda session: session.start_ns)
    if not sessions:
        raise JobError(f"plan {job.plan}: holds no session")
    offsets = start_offsets(job.arrivals, len(sessions), job.seed)
    if offsets is not None:
        sessions = [
            dataclasses.replace(session, start_ns=start_ns)
            for session, start_ns in zip(sessions, offsets.tolist(), strict=True)
        ]
    return ReplayPlan(plan.header, tuple(sessions))
