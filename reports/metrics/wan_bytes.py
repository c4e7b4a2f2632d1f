"""Everything the WAN carried in a repetition, both directions, by the link's own counters.

wan_bytes = sum over directions of last(sent_bytes) - first(sent_bytes)
"""

from __future__ import annotations

from reports.link_use import link_use
from reports.metric import Better, PerRep
from reports.run import Run


def measure(run: Run, cell: str, rep: int) -> float | None:
    use = link_use(run, cell, rep)
    return float(sum(d.sent_bytes for d in use)) if use else None


METRIC = PerRep(
    "wan_bytes",
    "Bytes on the WAN",
    "bytes",
    Better.LOWER,
    ("link_samples.sent_bytes",),
    measure,
    headline=True,
)
