"""Step times as a live run's own workers had them, as coefficients for the simulator.

Between two samples of a worker's counters: time spent in steps = overhead x steps + seconds x prompt tokens
+ seconds x decoded tokens, least squares without negative coefficients. Unlike steps measured alone, these
have in them what workers, router and load generator take from one another on the same machine.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.costs.measured import Measured
from harness.costs.quantity import Basis, Quantity
from reports.run import Run

_COUNTERS: Final = ("steps", "computed_tokens", "decoded_tokens", "busy_ns")
_LEAST_INTERVALS: Final = 20
_DECODE_KERNEL_TOKENS: Final = 16
_LOOPBACK_BYTES_S: Final = 1e9


def observed(run: Run) -> Measured:
    """Fit all workers of all cells together. ValueError when the run has too little to fit."""
    rows: list[tuple[float, float, float]] = []
    times_s: list[float] = []
    capacity = 0
    for cell in run.cells:
        for rep in run.reps(cell.name):
            workers: dict[str, list[dict[str, Any]]] = {}
            for row in run.table("worker_samples", cell.name, rep).to_pylist():
                workers.setdefault(row["worker"], []).append(row)
                capacity = max(capacity, row["capacity_tokens"] or 0)
            for samples in workers.values():
                samples.sort(key=lambda row: row["t_ns"])
                for before, after in itertools.pairwise(samples):
                    steps, computed, decoded, busy_ns = (after[c] - before[c] for c in _COUNTERS)
                    if steps > 0 and busy_ns > 0:
                        rows.append((steps, max(0, computed - decoded), decoded))
                        times_s.append(busy_ns / 1e9)
    if len(rows) < _LEAST_INTERVALS:
        raise ValueError(f"{run.path}: {len(rows)} intervals with steps; {_LEAST_INTERVALS} are needed")
    overhead_s, linear_s, decode_s, error = _fit(np.array(rows, np.float64), np.array(times_s))
    engine = run.cells[0].engines[0]
    source = f"a live run's own counters: {len(rows)} intervals, median relative error {error:.0%}"

    def quantity(value: float, text: str = source) -> Quantity:
        return Quantity(value, Basis.FITTED, text)

    return Measured(
        name=f"{engine.engine} {engine.model}",
        linear_s_per_token=quantity(linear_s),
        attention_s_per_pair=quantity(0.0, "in the prompt's tokens"),
        decode_s_per_token=quantity(decode_s),
        kv_read_s_per_token=quantity(0.0, "in the decoded tokens"),
        overhead_s=quantity(overhead_s),
        decode_kernel_tokens=quantity(float(_DECODE_KERNEL_TOKENS), "assumed"),
        kv_bytes_per_token=quantity(float(engine.details["kv_bytes_per_token"]), "told by the engine"),
        capacity_tokens=quantity(float(capacity), "told by the engine"),
        fabric_bytes_s=quantity(_LOOPBACK_BYTES_S, "assumed: loopback between processes"),
    )


def _fit(rows: NDArray[np.float64], times_s: NDArray[np.float64]) -> tuple[float, float, float, float]:
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to load

    weighted = rows / times_s[:, None]  # relative errors count, or the longest intervals decide alone
    scale = weighted.max(axis=0)
    scale[scale == 0] = 1.0
    found = nnls(weighted / scale, np.ones(len(times_s)))[0] / scale
    error = float(np.median(np.abs(rows @ found / times_s - 1)))
    return float(found[0]), float(found[1]), float(found[2]), error
