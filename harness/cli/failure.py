"""Which errors are the user's to mend (one line, exit code 2) or the run's (one line, exit code 1)."""

from __future__ import annotations

import errno
from typing import Final

_EXIT_CODES: Final[dict[str, int]] = {
    # Named, not imported: the command line must not load every package to report one error.
    "workloads.errors.TraceError": 2,
    "reports.errors.ReportError": 2,
    "harness.experiment.config.ConfigError": 2,
    "harness.costs.profile.ProfileError": 2,
    "harness.sim.planning.plan.PlanError": 2,
    "harness.sim.planning.executor.ExecutorError": 2,
    "harness.link.LinkError": 2,
    "harness.engine.EngineError": 2,
    "harness.experiment.failure.RunFailedError": 1,
    "harness.faults.surroundings.FaultError": 1,
    "harness.loadgen.job.JobError": 2,
    "harness.loadgen.calibration.CalibrationError": 1,
    "reports.errors.RecordingError": 1,
}


def exit_code(error: BaseException) -> int | None:
    """Exit code for an error a user can cause; None for anything else, which is a defect of ours."""
    for kind in type(error).__mro__:
        code = _EXIT_CODES.get(f"{kind.__module__}.{kind.__qualname__}")
        if code is not None:
            return code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return 1
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
        return 2
    return None
