"""The plan as this run replays it: read, and its session starts redrawn where the job says so."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness.loadgen.arrivals import start_offsets
from harness.loadgen.job import JobError

if TYPE_CHECKING:
    from harness.loadgen.job import LoadJob
    from workloads.replay import ReplaySession


def read_sessions(job: LoadJob) -> list[ReplaySession]:
    """All sessions of the run in the order of their starts. Raises JobError or the plan's own error."""
    from workloads.replay import read_plan  # noqa: PLC0415 - numpy and the plan's format, late: `--help` is instant

    if not job.plan.is_file():
        raise JobError(f"plan {job.plan}: no such file")
    sessions = sorted(read_plan(job.plan).sessions, key=lambda session: session.start_ns)
    if not sessions:
        raise JobError(f"plan {job.plan}: holds no session")
    offsets = start_offsets(job.arrivals, len(sessions), job.seed)
    if offsets is None:
        return sessions
    return [
        dataclasses.replace(session, start_ns=start_ns)
        for session, start_ns in zip(sessions, offsets.tolist(), strict=True)
    ]
