"""E4: cost and benefit of 88 A against 43 A, 32 B and a line."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.plots import cost_table
from harness.sim.reproduce.setting import Setting, run
from harness.sim.reproduce.targets import Findings

_SLO_SHARE: Final = 0.99
_STEPS: Final = 5
"""Halvings of the interval in which the highest rate is searched."""


def measure(calibration: Calibration, effort: Effort) -> Findings:
    """Arithmetic on the report's figures, and the throughput that each cluster carries within one SLO."""
    c = calibration
    same = c("economy.same_devices")
    cases = {
        "low": (c("economy.premium_high"), c("economy.line_high")),
        "high": (c("economy.premium_low"), c("economy.line_low")),
    }
    values: dict[str, float] = {}
    gain = c("economy.throughput_pdd") / c("economy.throughput_same")
    rows = []
    for name, (premium, line) in cases.items():
        total = c("economy.a_devices") + c("economy.b_devices") * (1 + premium) + line
        values[f"cost_{name}"] = 100 * (total / same - 1)
        values[f"bcr_{name}"] = 100 * (gain * same / total - 1)
        rows.append((premium, line, total, values[f"cost_{name}"], values[f"bcr_{name}"]))
    slo_s = _slo_s(c, effort)
    highest = {}
    for mode, rate in (("idc", c("latency.rate_same")), ("pdd", c("latency.rate_cross"))):
        highest[mode] = highest_rate(c, effort, mode, slo_s, start=rate)
    values["throughput_gain"] = 100 * (highest["pdd"] / highest["idc"] - 1)
    notes = {
        "throughput_gain": (
            f"{highest['idc']:.2f} and {highest['pdd']:.2f} req/s with TTFT P99 within {slo_s:.1f} s "
            "(that of the same-datacenter cluster at 9.0 req/s: the report does not state its SLO); "
            "the split of 88 into prefill and decode is fitted to the report's own ratio"
        )
    }
    return Findings(values, notes, (cost_table(rows),))


def p99_ttft_s(calibration: Calibration, setting: Setting) -> float:
    return run(calibration, setting).percentile("ttft_s", 100 * _SLO_SHARE)


def highest_rate(calibration: Calibration, effort: Effort, mode: str, slo_s: float, *, start: float) -> float:
    """Requests a second at which TTFT P99 just meets the SLO, between 0.6 and 1.6 of `start`."""
    low, high = 0.6 * start, 1.6 * start
    for _ in range(_STEPS):
        middle = (low + high) / 2
        met = _mean_p99(calibration, effort, mode, middle) <= slo_s
        low, high = (middle, high) if met else (low, middle)
    return (low + high) / 2


def _slo_s(calibration: Calibration, effort: Effort) -> float:
    return _mean_p99(calibration, effort, "idc", calibration("latency.rate_same"))


def _mean_p99(calibration: Calibration, effort: Effort, mode: str, rate: float) -> float:
    n = effort.requests
    settings = [Setting(mode, rate, n, n // 8, seed) for seed in range(1, effort.seeds + 1)]
    return float(np.mean(effort.map(partial(p99_ttft_s, calibration), settings)))
