"""E1, E3 and E7: TTFT of three modes, RLD's share of the tokens, and transfer times."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import numpy as np

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.plots import percentile_bars, survival
from harness.sim.reproduce.setting import Setting, run
from harness.sim.reproduce.targets import TARGETS, Findings

_MODES: Final = {"naive": "xdc", "pdd": "pdd", "same": "idc"}
_LABELS: Final = {"naive": "naive cross-datacenter", "pdd": "PDD", "same": "same datacenter"}
_QUANTILES: Final = (50, 90, 99)
_HIGH_HIT: Final = 0.95
_PLOT_POINTS: Final = np.concatenate([np.linspace(0, 99, 100), np.linspace(99.1, 99.9, 9)])


class LatencyRun(msgspec.Struct, frozen=True):
    """Figures of one simulation, small enough to cross a process boundary."""

    ttft_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    high_hit_transfer_s: float
    relay_share: float
    relayed_share: float
    hit: float
    above_95: float
    tpot_ms: float
    curve_s: tuple[float, ...]


def simulate(calibration: Calibration, setting: Setting) -> LatencyRun:
    tally = run(calibration, setting)
    hit = tally.column("cached_tokens") / tally.column("prompt_tokens")
    transfer = tally.column("transfer_s")
    high = transfer[(hit > _HIGH_HIT) & ~np.isnan(transfer)]
    return LatencyRun(
        ttft_s=tuple(tally.percentile("ttft_s", q) for q in _QUANTILES),
        transfer_s=tuple(tally.percentile("transfer_s", q) for q in _QUANTILES),
        high_hit_transfer_s=float(np.median(high)) if len(high) else float("nan"),
        relay_share=float(tally.column("relay_tokens").sum() / tally.column("output_tokens").sum()),
        relayed_share=float((tally.pipelines == "relayed").mean()),
        hit=float(hit.mean()),
        above_95=float((hit > _HIGH_HIT).mean()),
        tpot_ms=tally.percentile("tpot_s", 50) * 1e3,
        curve_s=tuple(float(v) for v in np.percentile(tally.column("ttft_s"), _PLOT_POINTS)),
    )


def settings(calibration: Calibration, effort: Effort) -> list[tuple[str, Setting]]:
    """Every simulation of the experiment: the mode's name here, and what is run."""
    out = []
    for name, mode in _MODES.items():
        rate = calibration("latency.rate_same" if name == "same" else "latency.rate_cross")
        n = effort.requests
        out += [(name, Setting(mode, rate, n, n // 8, seed)) for seed in range(1, effort.seeds + 1)]
    return out


def measure(calibration: Calibration, effort: Effort) -> Findings:
    """Means over the seeds."""
    planned = settings(calibration, effort)
    results = effort.map(partial(simulate, calibration), [setting for _, setting in planned])
    runs: dict[str, list[LatencyRun]] = {name: [] for name in _MODES}
    for (name, _), result in zip(planned, results, strict=True):
        runs[name].append(result)
    values: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name, of_mode in runs.items():
        for i, q in enumerate(_QUANTILES):
            each = [r.ttft_s[i] for r in of_mode]
            values[f"{name}_ttft_p{q}"] = float(np.mean(each))
            if len(each) > 1:
                notes[f"{name}_ttft_p{q}"] = f"{min(each):.1f} to {max(each):.1f} over {len(each)} seeds"
    values["ttft_p99_cut"] = 100 * (1 - values["pdd_ttft_p99"] / values["naive_ttft_p99"])
    pdd, naive, same = runs["pdd"], runs["naive"], runs["same"]
    values["relay_share"] = 100 * float(np.mean([r.relay_share for r in pdd]))
    notes["relay_share"] = (
        f"{100 * np.mean([r.relayed_share for r in pdd]):.0f} % of requests relayed (report: 20 to 30 %); "
        f"TPOT P50 {np.mean([r.tpot_ms for r in pdd]):.0f} ms"
    )
    for key, index in (("wan_p50", 0), ("wan_p99", 2)):
        values[key] = float(np.mean([r.transfer_s[index] for r in naive]))
    values["wan_high_hit"] = float(np.mean([r.high_hit_transfer_s for r in naive]))
    notes["wan_high_hit"] = (
        "their own bytes take 0.7 s on a connection; the rest is the wait for one behind low-hit "
        "transfers, in a pool that is fitted to naive P50"
    )
    values["fabric_p99"] = 1e3 * float(np.mean([r.transfer_s[2] for r in same]))
    notes["same_ttft_p50"] = (
        f"achieved hit {np.mean([r.hit for r in same]):.3f}, "
        f"{100 * np.mean([r.above_95 for r in same]):.0f} % of the requests above 95 %"
    )
    curves = {_LABELS[name]: np.mean([r.curve_s for r in of_mode], axis=0) for name, of_mode in runs.items()}
    stated = {target.key: target.value for target in TARGETS}
    reported = {_LABELS[n]: tuple(stated[f"{n}_ttft_p{q}"] for q in _QUANTILES) for n in _MODES}
    ours = {_LABELS[n]: tuple(values[f"{n}_ttft_p{q}"] for q in _QUANTILES) for n in _MODES}
    return Findings(values, notes, (survival(curves, _PLOT_POINTS), percentile_bars(ours, reported)))
