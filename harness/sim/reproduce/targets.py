"""The report's figures, each with its tolerance and whether a parameter was fitted to it."""

from __future__ import annotations

import math
from typing import Final

import msgspec


class Target(msgspec.Struct, frozen=True):
    """One figure. It is met within `relative` of the value, or within `low` to `high`."""

    key: str
    experiment: str
    title: str
    value: float
    unit: str
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    fitted: bool = False
    """Some parameter was fitted to it: meeting it predicts nothing. Else it is held out."""
    secondary: bool = False
    """Known from secondary notes only."""

    @property
    def bounds(self) -> tuple[float, float]:
        if self.relative is not None:
            width = abs(self.value) * self.relative
            return self.value - width, self.value + width
        return (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)

    def met(self, ours: float) -> bool:
        low, high = self.bounds
        return low <= ours <= high


def _ttft(
    mode: str, label: str, values: tuple[float, float, float], *, secondary: bool
) -> tuple[Target, ...]:
    """P50 and P99 choose parameters (of PDD: the split of 43 A and the load), P90 is held out."""
    return tuple(
        Target(
            f"{mode}_ttft_p{q}",
            "E1",
            f"{label}: TTFT P{q}",
            value,
            "s",
            relative=0.2,
            fitted=q != 90,
            secondary=secondary,
        )
        for q, value in zip((50, 90, 99), values, strict=True)
    )


TARGETS: Final[tuple[Target, ...]] = (
    *_ttft("naive", "naive cross-datacenter", (6.7, 18.3, 29.7), secondary=False),
    *_ttft("pdd", "PDD", (4.2, 9.8, 14.4), secondary=True),
    *_ttft("same", "same-datacenter PD", (3.9, 10.4, 17.2), secondary=True),
    Target("ttft_p99_cut", "E1", "PDD against naive: cut of TTFT P99", 51.5, "%", low=41.5, high=61.5),
    Target("kv_mean", "E2", "KV handoff of 100 tokens: mean", 185.0, "ms", relative=0.05, fitted=True),
    Target("kv_max", "E2", "KV handoff: maximum of 100", 512.6, "ms", relative=0.05, fitted=True),
    Target("kv_size", "E2", "KV handoff: payload", 4649.0, "KB", relative=0.01, fitted=True),
    Target("kv_copy", "E2", "KV handoff: device copy", 24.5, "ms", relative=0.05, fitted=True),
    Target("extend_mean", "E2", "extend-decode of 100 ids: mean", 305.0, "ms", relative=0.05, fitted=True),
    Target("extend_sd", "E2", "extend-decode: standard deviation", 4.8, "ms", relative=0.2, fitted=True),
    Target("extend_max", "E2", "extend-decode: maximum of 100", 321.4, "ms", relative=0.05),
    Target("extend_mean_above_kv", "E2", "extend's mean above KV's", 1.0, "", low=1.0),
    Target("extend_max_below_kv", "E2", "extend's maximum below KV's", 1.0, "", low=1.0),
    Target("relay_share", "E3", "output tokens made by RLD", 6.2, "%", low=4.0, high=9.0),
    Target("cost_low", "E4", "total cost, B 30 % dearer", -3.5, "%", low=-3.55, high=-3.45),
    Target("cost_high", "E4", "total cost, B 20 % dearer", -7.1, "%", low=-7.15, high=-7.05),
    Target("bcr_low", "E4", "BCR at the report's throughput, B 30 % dearer", 32.4, "%", low=32.3, high=32.5),
    Target("bcr_high", "E4", "BCR at the report's throughput, B 20 % dearer", 37.5, "%", low=37.4, high=37.6),
    Target(
        "throughput_gain",
        "E4",
        "throughput within the SLO, simulated",
        27.8,
        "%",
        low=17.8,
        high=37.8,
        fitted=True,
    ),
    Target("kv_production", "E5", "KV made by 80 req/s of 64K", 23.0, "GB/s", relative=0.01, fitted=True),
    Target("line_without_drc", "E5", "line without DRC", 184.0, "Gbit/s", relative=0.01),
    Target("line_with_drc", "E5", "line with DRC", 18.4, "Gbit/s", relative=0.01),
    Target("saturated_without_drc", "E5", "20 Gbit/s without DRC: demand over capacity", 1.0, "x", low=1.0),
    Target(
        "skewed_p50", "E6", "skewed hits: transfer P50", 0.248, "s", relative=0.3, fitted=True, secondary=True
    ),
    Target(
        "skewed_p99", "E6", "skewed hits: transfer P99", 18.9, "s", relative=0.3, fitted=True, secondary=True
    ),
    Target(
        "narrow_p50", "E6", "narrow hits: transfer P50", 1.21, "s", relative=0.3, fitted=True, secondary=True
    ),
    Target("narrow_p99", "E6", "narrow hits: transfer P99", 25.5, "s", relative=0.3, secondary=True),
    Target("wan_p50", "E7", "transfer across the WAN: P50", 1.0, "s", low=0.5, high=20.0),
    Target("wan_p99", "E7", "transfer across the WAN: P99", 20.0, "s", low=1.0, high=26.0),
    Target("wan_high_hit", "E7", "transfer of high-hit requests: P50", 1.0, "s", low=0.7, high=1.5),
    Target("fabric_p99", "E7", "transfer inside the datacenter: P99", 50.0, "ms", low=1.0, high=100.0),
    Target("dips", "E8", "throughput dips at hits of 20, 40 and 70 %", 3.0, "of 3", low=3.0),
    Target("dips_filled", "E8", "of these, left when tails are filled", 0.0, "of 3", low=0.0, high=0.0),
    Target(
        "bathtub_depth", "E8", "revenue at the bottom over the lower end (closed form)", 1.0, "", high=0.999
    ),
    Target("bathtub_simulated", "E8", "the same, simulated engine", 1.0, "", high=0.999),
    Target("collapse_share", "M10", "P-RLD allowed: turns on RLD by turn ten", 94.0, "%", low=80.0),
    Target("collapse_p99", "M10", "P-RLD allowed: TTFT P99, last over first quarter", 3.0, "x", low=3.0),
    Target("no_collapse_p99", "M10", "P-RLD excluded: the same", 1.0, "x", high=2.5),
)
EXPERIMENTS: Final = ("E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "M10")


class ReproductionChart(msgspec.Struct, frozen=True):
    """A plotly figure with what it shows."""

    name: str
    title: str
    caption: str
    figure: dict[str, object]


class Findings(msgspec.Struct, frozen=True):
    """What an experiment came to: values by target key, and why a figure is what it is."""

    values: dict[str, float]
    notes: dict[str, str] = {}
    charts: tuple[ReproductionChart, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """One line of the reproduction."""

    target: Target
    ours: float
    met: bool
    note: str = ""


def judge(
    experiments: tuple[str, ...], values: dict[str, float], notes: dict[str, str]
) -> tuple[Verdict, ...]:
    """Every target of these experiments against what was found."""
    return tuple(
        Verdict(t, values[t.key], t.met(values[t.key]), notes.get(t.key, ""))
        for t in TARGETS
        if t.experiment in experiments
    )
