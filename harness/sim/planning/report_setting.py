"""The report's purchase: what it bought, what else could be bought, at its prices in units of one A."""

from __future__ import annotations

from harness.sim.planning.arena import ReportArena
from harness.sim.planning.candidate import Candidate, Prices, Slo
from harness.sim.planning.search import Space
from harness.sim.reproduce.calibration import Calibration


def report_arena(calibration: Calibration, hit_shift: float = 0.0) -> ReportArena:
    return ReportArena(calibration, hit_shift)


def report_prices(calibration: Calibration) -> Prices:
    """A is 1; B at the middle of its premium; the line in proportion to its rate."""
    c = calibration
    premium = (c("economy.premium_low") + c("economy.premium_high")) / 2
    line = (c("economy.line_low") + c("economy.line_high")) / 2
    return Prices(1.0, 1 + premium, line / c("latency_line.rate_gbit_s"))


def report_slo() -> Slo:
    """TTFT P99 of the report's same-datacenter cluster; TPOT of the 20 to 30 ms that it states."""
    return Slo(ttft_s=17.2, tpot_ms=30.0)


def report_baseline(calibration: Calibration) -> Candidate:
    """43 A and 32 B."""
    c = calibration
    return Candidate(
        int(c("latency.prefill_workers")),
        int(c("latency.prefill_devices_cross")),
        1,
        int(c("latency.relay_devices")),
        int(c("latency.main_workers")),
        int(c("latency.main_cross_devices")),
        "pdd",
        c("latency.relay_bound_ms"),
        c("latency_line.rate_gbit_s"),
    )


def report_space(calibration: Calibration) -> Space:
    """Two prefill workers of any size, a relay, two main workers of any size, three lines."""
    base = report_baseline(calibration)
    return Space(
        prefill=tuple((base.prefill_workers, n) for n in range(15, 24)),
        relay=((0, 0), *((1, n) for n in range(3, 8))),
        main=tuple((base.main_workers, n) for n in (3, 4, 6, 8, 12, 16)),
        modes=("pdd", "pdd-dynamic"),
        relay_bounds_ms=(100.0, base.relay_bound_ms, 600.0),
        lines_gbit=(base.line_gbit / 2, base.line_gbit, 2 * base.line_gbit),
    )
