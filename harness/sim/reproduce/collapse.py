"""M10: with P-RLD allowed, a session that once ended on the relay decoder never leaves it."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.costs.deployment import deploy
from harness.policy.config import MODES
from harness.policy.roles import Role
from harness.sim.cell import SimCell, SimWorkerSpec
from harness.sim.clients import Load
from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.plots import collapse_lines
from harness.sim.reproduce.targets import Findings
from harness.sim.session import PlainSession, PlainTurn
from harness.sim.simulation import Simulation
from harness.sim.tally import Tally
from harness.sim.wan import LineModel

_MODEL: Final = "deepseek-v3.2"
_LINE: Final = LineModel(rate_bytes_s=40e9 / 8, rtt_s=0.02, efficiency=0.95, connections=48)
_BOUND_MS: Final = 80.0
_LOW_HIT: Final = 0.25
"""Share of the turns that bring a long tool result."""
_TURNS: Final = 20
_SESSIONS_PER_S: Final = 0.7
_LAST_TURN: Final = 10


class CollapseRun(msgspec.Struct, frozen=True):
    """Share of turns on RLD and TTFT P99, by turn and by quarter of the run."""

    share_by_turn: tuple[float, ...]
    p99_by_quarter_s: tuple[float, ...]


def measure(calibration: Calibration, effort: Effort) -> Findings:  # noqa: ARG001 - profiles, nothing fitted
    """Both policies on the same sessions."""
    sessions = max(120, effort.requests // 20)
    excluded, allowed = effort.map(partial(simulate, sessions), [False, True])
    values = {
        "collapse_share": 100 * allowed.share_by_turn[_LAST_TURN],
        "collapse_p99": allowed.p99_by_quarter_s[-1] / allowed.p99_by_quarter_s[0],
        "no_collapse_p99": excluded.p99_by_quarter_s[-1] / excluded.p99_by_quarter_s[0],
    }
    notes = {
        "collapse_share": f"by 1 - (1 - {_LOW_HIT})^{_LAST_TURN}: "
        f"{100 * (1 - (1 - _LOW_HIT) ** _LAST_TURN):.0f} %; "
        f"excluded: {100 * excluded.share_by_turn[_LAST_TURN]:.0f} % of turn {_LAST_TURN} relayed",
        "collapse_p99": "TTFT P99 by quarter: "
        + ", ".join(f"{v:.1f}" for v in allowed.p99_by_quarter_s)
        + " s",
        "no_collapse_p99": "TTFT P99 by quarter: "
        + ", ".join(f"{v:.1f}" for v in excluded.p99_by_quarter_s)
        + " s",
    }
    chart = collapse_lines(
        {"P-RLD allowed": allowed.share_by_turn, "P-RLD excluded": excluded.share_by_turn},
        [1 - (1 - _LOW_HIT) ** (t + 1) for t in range(_TURNS)],
    )
    return Findings(values, notes, (chart,))


def simulate(sessions: int, allowed: bool) -> CollapseRun:
    found = MODES["pdd"].policy
    routing = msgspec.structs.replace(found.routing, relay_bound_ms=_BOUND_MS, relay_slots=100_000)
    policy = msgspec.structs.replace(found, local=allowed, routing=routing, deadline_s=1800.0)
    prefill, relay, main = deploy(_MODEL, "h100x16"), deploy(_MODEL, "h100x12"), deploy(_MODEL, "h200x16")
    workers = (
        *(SimWorkerSpec(f"prefill-{i}", Role.PREFILL, "A", prefill, 600, 16_384) for i in range(4)),
        SimWorkerSpec("relay-0", Role.RELAY_DECODE, "A", relay, 600, 16_384),
        *(SimWorkerSpec(f"main-{i}", Role.MAIN_DECODE, "B", main, 600, 16_384) for i in range(3)),
    )
    tally = Tally()
    cell = SimCell(policy, workers, _LINE, sample_s=None)
    sim = Simulation(cell, iter(_conversations(sessions)), Load(), tally, seed=1)
    sim.run()
    on_relay = np.isin(tally.pipelines, ("local", "relayed"))
    turn, ttft, arrived = tally.column("turn"), tally.column("ttft_s"), tally.column("arrived_s")
    edges = np.percentile(arrived, (0, 25, 50, 75))
    quarter = np.searchsorted(edges, arrived, side="right") - 1
    return CollapseRun(
        tuple(_mean(on_relay[turn == t]) for t in range(_TURNS)),
        tuple(float(np.percentile(ttft[quarter == k], 99)) for k in range(4)),
    )


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _conversations(sessions: int) -> list[PlainSession]:
    rng = np.random.default_rng(0xA10)
    starts = np.cumsum(rng.exponential(1 / _SESSIONS_PER_S, sessions))
    out = []
    for i, start in enumerate(starts.tolist()):
        turns: list[PlainTurn] = []
        for k in range(_TURNS):
            answer = max(2, round(rng.lognormal(np.log(350), 0.5)))
            if not turns:
                turns.append(PlainTurn(0, max(2, round(rng.lognormal(np.log(5000), 0.1))), answer))
                continue
            low_hit = rng.random() < _LOW_HIT
            new = max(1, round(rng.lognormal(np.log(9000 if low_hit else 500), 0.3 if low_hit else 0.5)))
            base = turns[-1]
            prompt = base.prompt_tokens + base.output_tokens + new
            think_ns = round(rng.lognormal(np.log(7.0), 0.5) * 1e9)
            turns.append(
                PlainTurn(
                    k, prompt, answer, k - 1, base.prompt_tokens, True, base.output_tokens, think_ns, (k - 1,)
                )
            )
        out.append(PlainSession(f"s{i}", round(start * 1e9), tuple(turns)))
    return out
