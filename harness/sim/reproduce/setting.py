"""The report's latency setting (E1, E3, E4, E7): 64K requests with skewed hits, each mode's cluster.

Requests arrive as one gamma renewal process over a population of live sessions. A session's prompt keeps
the leading part of the previous one and replaces the rest, so that every prompt is 64K long and the hit
is what the caches really hold. Sessions under way at the start find their last prompt cached.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.policy.config import MODES
from harness.policy.roles import Role
from harness.sim.cell import SimCell, SimWorkerSpec
from harness.sim.clients import Load, Pace
from harness.sim.reproduce.calibration import Calibration
from harness.sim.session import PlainSession, PlainTurn
from harness.sim.simulation import Simulation
from harness.sim.tally import Tally

_HIT_POINTS: Final = ((0.0, 0.5), (0.17, 0.95), (0.58, 0.985), (1.0, 0.992))
"""Quantile function of a turn's hit; with one cold turn in 20, mean .90 and 78 % above .95."""
_STRATA: Final = 100
_HEAD_GROUPS: Final = 8
_LIVE_SESSIONS: Final = 500
_SLACK: Final = 1000
"""Sessions stay where their prefix is: recomputing 64K costs more than any queue here."""
_CHUNK_TOKENS: Final = 16_384
_DECODE_CHUNK_TOKENS: Final = 8192
_MAX_SEQUENCES: Final = 4000


class Setting(msgspec.Struct, frozen=True):
    """One simulation of the setting."""

    mode: str
    rate: float
    """Requests per second."""
    requests: int
    warmup: int
    seed: int


def run(calibration: Calibration, setting: Setting) -> Tally:
    """Simulate; requests of the warm-up are not in the tally."""
    tally = Tally()
    sessions, cached = sessions_of(calibration, setting)
    load = Load(Pace.EVERY_TURN, warmup_ns=round(setting.warmup / setting.rate * 1e9))
    sim = Simulation(cell_of(calibration, setting.mode), iter(sessions), load, tally, seed=setting.seed)
    prime(sim, cached)
    sim.run()
    return tally


def prime(sim: Simulation, cached: list[PlainSession]) -> None:
    """Put the sessions' last prompts into the caches of P and MD, spread over the workers."""
    holders = [
        [w.name for w in sim.workers.values() if w.role is role] for role in (Role.PREFILL, Role.MAIN_DECODE)
    ]
    for i, session in enumerate(cached):
        for names in holders:
            sim.remember(names[i % len(names)], session, 0, session.turns[0].prompt_tokens - 1)


def cell_of(calibration: Calibration, mode: str) -> SimCell:
    """The mode's cluster: 88 A in one datacenter, or 43 A and 32 B with the line between."""
    c, found = calibration, MODES[mode]
    cross = found.main_cluster == "B"
    prefill_devices = int(c("latency.prefill_devices_cross" if cross else "latency.prefill_devices_same"))
    main = int(c("latency.main_cross_devices" if cross else "latency.main_same_devices"))
    accelerator = "h200" if cross else "h100"
    workers = [
        _worker(f"prefill-{i}", Role.PREFILL, "A", c, "h100", prefill_devices, _CHUNK_TOKENS)
        for i in range(int(c("latency.prefill_workers")))
    ]
    if found.policy.relay:
        devices = int(c("latency.relay_devices"))
        workers.append(_worker("relay-0", Role.RELAY_DECODE, "A", c, "h100", devices, _DECODE_CHUNK_TOKENS))
    workers += [
        _worker(f"main-{i}", Role.MAIN_DECODE, found.main_cluster, c, accelerator, main, _DECODE_CHUNK_TOKENS)
        for i in range(int(c("latency.main_workers")))
    ]
    routing = msgspec.structs.replace(
        found.policy.routing, relay_bound_ms=c("latency.relay_bound_ms"), affinity_slack=_SLACK
    )
    policy = msgspec.structs.replace(found.policy, routing=routing, deadline_s=600.0)
    return SimCell(policy, tuple(workers), c.line("latency_line"), sample_s=None)


def _even(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Uniform numbers that are even over every stretch of a hundred: the same load for every seed, so that
    seeds differ by order and bursts, not by how much work happened to be drawn."""
    strata = np.concatenate([rng.permutation(_STRATA) for _ in range(n // _STRATA + 1)])[:n]
    return (strata + rng.random(n)) / _STRATA


def _worker(
    name: str,
    role: Role,
    cluster: str,
    calibration: Calibration,
    accelerator: str,
    devices: int,
    chunk_tokens: int,
) -> SimWorkerSpec:
    deployment = calibration.deployment(accelerator, devices)
    return SimWorkerSpec(name, role, cluster, deployment, _MAX_SEQUENCES, chunk_tokens)


def sessions_of(
    calibration: Calibration, setting: Setting, *, hit_shift: float = 0.0
) -> tuple[list[PlainSession], list[PlainSession]]:
    """Sessions in order of start, and those of them whose turn 0 is context from before the run.

    `hit_shift` is added to every turn's hit."""
    c, n = calibration, setting.requests
    rng = np.random.default_rng([setting.seed, 0xE1])
    shape = 1 / c("latency.arrival_cv2")
    arrivals = np.cumsum(rng.gamma(shape, 1 / (shape * setting.rate), n))
    arrivals *= n / setting.rate / arrivals[-1]
    hits = np.interp(_even(rng, n), [p for p, _ in _HIT_POINTS], [h for _, h in _HIT_POINTS])
    hits = np.clip(hits + hit_shift, 0.0, 0.999)
    slots = np.concatenate([rng.permutation(_LIVE_SESSIONS) for _ in range(n // _LIVE_SESSIONS + 1)])[:n]
    length, output, turns = (int(c(f"latency.{k}")) for k in ("length_tokens", "output_tokens", "turns"))
    ages = rng.permutation(np.arange(_LIVE_SESSIONS) % turns)
    open_: list[tuple[str, list[PlainTurn], int] | None] = [None] * _LIVE_SESSIONS
    made: list[tuple[str, int, list[PlainTurn], bool]] = []
    for at_s, hit, slot in zip(arrivals.tolist(), hits.tolist(), slots.tolist(), strict=True):
        at_ns = round(at_s * 1e9)
        current = open_[slot]
        if current is None or len(current[1]) >= current[2]:
            warm = current is None
            name, story = f"s{len(made)}", [PlainTurn(0, length, 0)] if warm else []
            current = open_[slot] = (name, story, turns - int(ages[slot]) + 1 if warm else turns)
            made.append((name, at_ns, story, warm))
        story = current[1]
        k = len(story)
        if k == 0:
            story.append(PlainTurn(0, length, output, arrival_ns=at_ns))
            continue
        after = (k - 1,) if story[-1].output_tokens else ()
        story.append(PlainTurn(k, length, output, k - 1, int(hit * length), False, 0, 0, after, at_ns))
    head = int(c("latency.head_tokens"))
    sessions = [
        (PlainSession(name, start, tuple(story), (f"head-{i % _HEAD_GROUPS}", head)), warm)
        for i, (name, start, story, warm) in enumerate(made)
        if len(story) > 1 or not warm
    ]
    return [s for s, _ in sessions], [s for s, warm in sessions if warm]
