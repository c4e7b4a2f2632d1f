"""Time from the end of a fault until service is as before it, the longest over the faults of a repetition.

    see reports.recovery; +inf when it did not recover before the end

Null without faults.
"""

from __future__ import annotations

from reports.metric import Better, PerRep
from reports.recovery import recoveries
from reports.run import Run


def measure(run: Run, cell: str, rep: int) -> float | None:
    times = [r.recovery_s for r in recoveries(run, cell, rep) if r.recovery_s is not None]
    return max(times, default=None)


METRIC = PerRep(
    "recovery_time",
    "Time to recover after a fault",
    "s",
    Better.LOWER,
    ("faults.cleared_ns", "requests.sent_ns", "requests.first_token_ns", "requests.status"),
    measure,
    headline=True,
)
