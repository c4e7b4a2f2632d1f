"""E6: transfers alone on a 20 Gbit/s line at 80 requests a second, skewed against narrow hits."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.sim.event_queue import EventQueue
from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.plots import transfer_distribution
from harness.sim.reproduce.targets import Findings
from harness.sim.wan import Flow, WanPool

_SKEWED_POINTS: Final = ((0.0, 0.02), (0.06, 0.6), (0.24, 0.95), (0.6, 0.985), (1.0, 0.992))
"""Quantile function of the hit, from 2 to 99 %: mean .90, 76 % above .95, 5 % below .5."""
_WARMUP: Final = 0.1


def transfer_times(calibration: Calibration, case: tuple[str, int, int]) -> NDArray[np.float64]:
    """Seconds of each transfer after the warm-up, for (kind, requests, seed)."""
    kind, requests, seed = case
    rng = np.random.default_rng([seed, 0xE6])
    u = rng.random(requests)
    hits = (
        0.85 + 0.1 * u
        if kind == "narrow"
        else np.interp(u, [p for p, _ in _SKEWED_POINTS], [h for _, h in _SKEWED_POINTS])
    )
    kv_bytes = (
        (1 - hits) * calibration("latency.length_tokens") * calibration.model().kv_bytes_per_token.value
    )
    shape = 1 / calibration("wan_test.arrival_cv2")
    starts = np.cumsum(rng.gamma(shape, 1 / (shape * calibration("wan_test.request_rate")), requests))
    queue = EventQueue()
    pool = WanPool(queue, calibration.line("wan_test"), seed)
    times = np.zeros(requests)

    def landed(flow: Flow) -> None:
        index = flow.argument
        assert isinstance(index, int)
        times[index] = queue.now_ns * 1e-9 - starts[index]

    def begin(index: int) -> None:
        pool.start(max(1, int(kv_bytes[index])), landed, index)

    for i, at_s in enumerate(starts.tolist()):
        queue.at(round(at_s * 1e9), begin, i)
    queue.run()
    return times[int(_WARMUP * requests) :]


def measure(calibration: Calibration, effort: Effort) -> Findings:
    """Means of the percentiles over the seeds; transfers are cheap, so there are more of them."""
    requests, seeds = 2 * effort.requests, 2 * effort.seeds
    cases = [(kind, requests, seed) for kind in ("skewed", "narrow") for seed in range(1, seeds + 1)]
    results = effort.map(partial(transfer_times, calibration), cases)
    values: dict[str, float] = {}
    notes: dict[str, str] = {}
    pooled: dict[str, NDArray[np.float64]] = {}
    for kind in ("skewed", "narrow"):
        each = [r for (k, _, _), r in zip(cases, results, strict=True) if k == kind]
        pooled[kind] = np.concatenate(each)
        for q in (50, 99):
            figures = [float(np.percentile(r, q)) for r in each]
            values[f"{kind}_p{q}"] = float(np.mean(figures))
            notes[f"{kind}_p{q}"] = f"{min(figures):.2f} to {max(figures):.2f} over {seeds} seeds"
    return Findings(values, notes, (transfer_distribution(pooled),))
