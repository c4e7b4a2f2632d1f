"""Share of what the line A to B could have carried during a repetition.

    wan_utilisation = bits sent A to B / integral of rate_bit_s

Null for an unshaped line.
"""

from __future__ import annotations

from reports.link_use import link_use
from reports.metric import Better, PerRep
from reports.run import Run


def measure(run: Run, cell: str, rep: int) -> float | None:
    for use in link_use(run, cell, rep):
        if use.direction == "a_to_b" and use.capacity_bytes:
            return use.sent_bytes / use.capacity_bytes
    return None


METRIC = PerRep(
    "wan_utilisation",
    "Use of the WAN A to B",
    "1",
    Better.NEITHER,
    ("link_samples.sent_bytes", "link_samples.rate_bit_s"),
    measure,
    headline=True,
)
