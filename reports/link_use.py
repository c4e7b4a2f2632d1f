"""What the WAN carried, against what its line could have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reports.run import Run

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One direction during one repetition. The arrays have one entry per sampling interval."""

    direction: str
    driver: str
    profile: str
    sent_bytes: int
    dropped_packets: int | None
    capacity_bytes: float | None
    """Integral of the configured rate; None when unshaped."""
    t_ns: npt.NDArray[np.int64]
    """End of each interval, epoch ns."""
    carried_bit_s: Floats
    rate_bit_s: Floats
    """Configured rate, NaN when unshaped."""
    backlog_bytes: Floats
    rtt_ms: Floats
    """In-band probe, NaN when lost or not probed."""


def link_use(run: Run, cell: str, rep: int) -> list[LinkUse]:
    """Use of each sampled direction, 'a_to_b' first; directions with fewer than two samples are left out."""
    table = run.table("link_samples", cell, rep)
    if not table.num_rows:
        return []
    frame = table.to_pandas()
    found = []
    for direction, rows in frame.groupby("direction", observed=True):
        rows = rows.sort_values("t_ns")  # noqa: PLW2901
        t_ns = rows["t_ns"].to_numpy(np.int64)
        sent = rows["sent_bytes"].to_numpy(np.float64)
        if len(rows) < 2 or np.isnan(sent).any():
            continue
        seconds = np.maximum(np.diff(t_ns), 1) / 1e9
        rate = rows["rate_bit_s"].to_numpy(np.float64)
        capacity = float((rate[1:] * seconds).sum() / 8)
        dropped = rows["dropped_packets"].to_numpy(np.float64)
        found.append(
            LinkUse(
                direction=str(direction),
                driver=str(rows["driver"].iloc[0]),
                profile=str(rows["profile"].iloc[0]),
                sent_bytes=int(sent[-1] - sent[0]),
                dropped_packets=None if np.isnan(dropped[[0, -1]]).any() else int(dropped[-1] - dropped[0]),
                capacity_bytes=None if np.isnan(capacity) else capacity,
                t_ns=t_ns[1:],
                carried_bit_s=np.diff(sent) * 8 / seconds,
                rate_bit_s=rate[1:],
                backlog_bytes=rows["backlog_bytes"].to_numpy(np.float64)[1:],
                rtt_ms=rows["rtt_ns"].to_numpy(np.float64)[1:] / 1e6,
            )
        )
    return found
