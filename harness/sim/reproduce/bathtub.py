"""E8: revenue per accelerator-second against the hit rate, and the dips that tail chunks make.

    t(h) = a + g (1 - h) + q (1 - h^2) + d h      time of a prefill, a full one taking 1
    R(h) = [(1 - h) + p h] / t(h)                 revenue, an uncached token paying 1 and a cached one p

R'(0) < 0 iff p < a + q + d, and R'(1) > 0 iff p > (a + d) / (1 + q): a bathtub (a minimum inside) exists
iff (a + d) / (1 + q) < p < a + q + d. Its right end is above its left one iff p > a + d. Without a
quadratic part (q = 0) both bounds are a + d, so linear prefill never gives one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.costs.deployment import Deployment, deploy
from harness.policy.roles import Role
from harness.sim.event_queue import EventQueue
from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.plots import bathtub_curves, dip_bars
from harness.sim.reproduce.targets import Findings
from harness.sim.session import PlainSession, PlainTurn
from harness.sim.worker import SimWorker

_PRICES: Final = (0.083, 0.1, 0.25, 0.5)
_GRID: Final = np.linspace(0.0, 1.0, 101)
_DIP_HITS: Final = (0.2, 0.4, 0.7)
_DIP: Final = 0.995
_REQUESTS: Final = 40
_ENGINE: Final = ("deepseek-v3", "h100x16")
"""A model whose attention takes .69 of the FLOPs at 64K; the v4-class one hides the effect."""


def closed_form(a: float, q: float, d: float, p: float, hits: NDArray[np.float64]) -> NDArray[np.float64]:
    """R(h) of the closed form; g follows from a + g + q = 1."""
    g = 1 - a - q
    time = a + g * (1 - hits) + q * (1 - hits**2) + d * hits
    return ((1 - hits) + p * hits) / time


def has_bathtub(a: float, q: float, d: float, p: float) -> bool:
    return (a + d) / (1 + q) < p < a + q + d


def measure(calibration: Calibration, effort: Effort) -> Findings:  # noqa: ARG001 - deterministic
    """The closed form, the same curve from the simulated engine, and the dips."""
    c = calibration
    a, q, d, p = (c(f"bathtub.{k}") for k in ("fixed", "attention", "loading", "cached_price"))
    curve = closed_form(a, q, d, p, _GRID)
    deployment = deploy(*_ENGINE)
    length, chunk = int(c("bathtub.length_tokens")), int(c("bathtub.chunk_tokens"))
    hits = np.linspace(0.0, 0.99, 34)
    seconds = np.array([prefill_s(deployment, length, float(h), chunk, fill_tail=True) for h in hits])
    simulated = {price: ((1 - hits) + price * hits) / (seconds / seconds[0]) for price in _PRICES}
    grid = [i / 10 for i in range(10)]
    alone = [relative_throughput(deployment, length, h, chunk, fill_tail=False) for h in grid]
    filled = [relative_throughput(deployment, length, h, chunk, fill_tail=True) for h in grid]
    dips = [h for h, r in zip(grid, alone, strict=True) if r < _DIP]
    values = {
        "dips": float(sum(1 for h in _DIP_HITS if h in dips)),
        "dips_filled": float(sum(1 for h in _DIP_HITS if filled[grid.index(h)] < _DIP)),
        "bathtub_depth": float(curve.min() / min(curve[0], curve[-1])),
        "bathtub_simulated": float(simulated[p].min() / min(simulated[p][0], simulated[p][-1])),
    }
    bottom = float(_GRID[curve.argmin()])
    ours = float(hits[simulated[p].argmin()])
    others = [f"{h:.0%}" for h in dips if h not in _DIP_HITS]
    seen = ", ".join(f"{r:.2f} at {h:.0%}" for h, r in zip(grid, alone, strict=True) if r < _DIP)
    unlisted = f"; {', '.join(others)} by the same arithmetic, not listed in the report" if others else ""
    notes = {
        "dips": f"relative throughput {seen}{unlisted}",
        "bathtub_depth": f"(a + d) / (1 + q) = {(a + d) / (1 + q):.2f} < p = {p:.2f} < a + q + d = "
        f"{a + q + d:.2f}; "
        f"minimum {curve.min():.3f} at a hit of {bottom:.2f}",
        "bathtub_simulated": f"minimum {simulated[p].min():.3f} at a hit of {ours:.2f}, "
        f"{' on '.join(_ENGINE)}",
    }
    forms = {price: closed_form(a, q, d, price, _GRID) for price in _PRICES}
    charts = (bathtub_curves(_GRID, forms, hits, simulated), dip_bars(grid, alone, filled))
    return Findings(values, notes, charts)


def prefill_s(
    deployment: Deployment, length: int, hit: float, chunk_tokens: int, *, fill_tail: bool
) -> float:
    """Seconds a request of one worker that has many of them waiting, each with `hit` of its prompt cached."""
    queue = EventQueue()
    worker = SimWorker(
        "p",
        Role.PREFILL,
        "A",
        deployment,
        queue,
        lambda *_: None,
        max_sequences=_REQUESTS,
        chunk_tokens=chunk_tokens,
        capacity_tokens=2 * _REQUESTS * length,
        time_scale=1.0,
        fill_tail=fill_tail,
        token_instants=False,
    )
    cached = round(hit * length)
    for i in range(_REQUESTS):
        session = PlainSession(f"s{i}", 0, (PlainTurn(0, cached, 0), PlainTurn(1, length + 1, 1, 0, cached)))
        if cached:
            worker.cache.pin(session, 0, cached)
            worker.cache.keep(session, 0, cached)
            worker.cache.unpin(session)
        worker.open(i, f"r{i}", session, 1, length, prefill=True)
    queue.run()
    return queue.now_ns * 1e-9 / _REQUESTS


def relative_throughput(
    deployment: Deployment, length: int, hit: float, chunk_tokens: int, *, fill_tail: bool
) -> float:
    """Linear layers' throughput over what full chunks reach; attention and overheads are left out."""
    plain = _without_attention(deployment)
    tokens = length - round(hit * length)
    return (
        tokens * plain.linear_s_per_token / prefill_s(plain, length, hit, chunk_tokens, fill_tail=fill_tail)
    )


def _without_attention(deployment: Deployment) -> Deployment:
    return replace(deployment, attention_s_per_pair=0.0, overhead_s=0.0, kv_read_s_per_token=0.0)
