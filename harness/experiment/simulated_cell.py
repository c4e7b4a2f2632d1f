"""From an experiment's cell to the simulator's: workers by cost profile, link as pool, pace of the load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from adapters.links.profiles import mean_loss_share, named
from harness.costs.deployment import Deployment, deploy
from harness.costs.measured import load_measured
from harness.costs.profile import Line, ProfileError, load_line
from harness.experiment.config import Cell, ConfigError, CostConfig
from harness.experiment.plans import plan_of
from harness.experiment.topology import WorkerSlot, workers_of
from harness.link import Cluster, LinkProfile
from harness.loadgen.arrivals import start_offsets
from harness.loadgen.job import Arrivals, ClosedLoop, EveryTurn
from harness.policy.roles import Role
from harness.sim.cell import SimCell, SimWorkerSpec
from harness.sim.clients import Load, Pace
from harness.sim.session import Session
from harness.sim.settings import WorkerKind
from harness.sim.wan import LineModel, line_model
from workloads.replay import ReplayPlan
from workloads.replay_plan import ReplaySession
from workloads.vocabulary import Vocabulary

_TOKEN_TIMES_UP_TO: Final = 20_000
_UNSHAPED_BYTES_S: Final = 1e12
_MESSAGE_MS: Final = 1.0
"""A command or an event between router and worker, or a client's request, on an idle machine."""
_LOOPBACK_BYTES_S: Final = 1.5e8
"""KV between two workers of one cluster, through export, framing and join."""
_EFFICIENCY: Final = 0.95
"""Payload of TCP over Ethernet."""
_RELAY_EFFICIENCY: Final = 0.995
"""The relay counts the bytes of the stream: payload and the heads of KV frames."""
_DEVICES: Final = "h100x8"
_VOCABULARY: Final = Vocabulary(3, 129_280)
"""Lengths alone are simulated; the plan needs some vocabulary."""


def sim_cell(cell: Cell, *, requests: int) -> SimCell:
    """The cell for the simulator. ConfigError for unknown costs and for what only a live run can do."""
    profile = link_profile(cell)
    slots = workers_of(cell)
    workers = tuple(_worker(cell, slot) for slot in slots)
    cancellation = cell.load.cancellation
    if cancellation is not None and cancellation.after_tokens is not None:
        raise ConfigError(
            f"cell {cell.name}: load.cancellation.after_tokens is not simulated; use after_s, or a live run"
        )
    settings, options = cell.sim, cell.cluster.engine_options
    live = settings.workers is WorkerKind.LIVE
    message_ms = settings.message_ms
    if message_ms is None:
        message_ms = _MESSAGE_MS if live else 0.0
    token_times = settings.token_times
    return SimCell(
        policy=cell.policy,
        workers=workers,
        line=line_of(cell, profile, slots),
        believed_bytes_s=_believed_bytes_s(cell, profile),
        segment_tokens=cell.cluster.segment_tokens if live else None,
        byte_scale=settings.byte_scale or float(options.get("byte_scale", 1.0)),
        time_scale=settings.time_scale or float(options.get("time_scale", 1.0)),
        message_s=message_ms / 1e3,
        handoff_extra_s=settings.handoff_extra_ms / 1e3,
        handoff_extra_sd_s=settings.handoff_extra_sd_ms / 1e3,
        copy_s=settings.copy_ms / 1e3,
        fill_tail=settings.fill_tail,
        token_instants=requests <= _TOKEN_TIMES_UP_TO if token_times is None else token_times,
        sample_s=settings.sample_s,
        cancel_share=cancellation.share if cancellation else 0.0,
        cancel_after_s=(cancellation.after_s or 0.0) if cancellation else 0.0,
    )


def link_profile(cell: Cell) -> LinkProfile:
    profile = cell.link.profile
    return named(profile) if isinstance(profile, str) else profile


def line_profile(cell: Cell) -> Line | None:
    return load_line(cell.sim.line) if cell.sim.line is not None else None


def cost_per_hour(cell: Cell, workers: tuple[SimWorkerSpec, ...], prices: CostConfig) -> float | None:
    """The experiment's prices where it has them, else the profiles' (devices, and the line's)."""
    crosses = any(worker.cluster == "B" for worker in workers)
    if prices.a_per_hour is not None and prices.b_per_hour is not None:
        in_b = sum(1 for worker in workers if worker.cluster == "B")
        hourly = (len(workers) - in_b) * prices.a_per_hour + in_b * prices.b_per_hour
        return hourly + (prices.line_per_hour if crosses else 0.0)
    devices = sum(worker.deployment.price_usd_h for worker in workers)
    if not devices:
        return None
    line = line_profile(cell)
    return devices + (
        line.price_usd_h.value if crosses and line else prices.line_per_hour if crosses else 0.0
    )


def make_sessions(cell: Cell, seed: int, rep: int) -> ReplayPlan:
    """The same plan that a live run of this cell and repetition replays, but for the token ids."""
    return plan_of(
        cell, rep, seed=seed, vocabulary=_VOCABULARY, max_context_tokens=cell.cluster.max_context_tokens
    )


def load_of(cell: Cell, plan: ReplayPlan, seed: int) -> tuple[Load, Iterator[Session]]:
    """Pace of the load, and sessions with the starts that the load generator would draw."""
    load = cell.load
    pace = Pace.OPEN
    live = 1
    match load.arrivals:
        case ClosedLoop():
            pace, live = Pace.CLOSED, load.arrivals.sessions
        case EveryTurn():
            pace = Pace.EVERY_TURN
        case _:
            pass
    stop_s = load.limits.duration_s
    return (
        Load(
            pace=pace,
            live_sessions=live,
            stop_ns=None if stop_s is None else round(stop_s * 1e9),
            warmup_ns=round(load.warmup.seconds * 1e9),
            warmup_sessions=load.warmup.sessions,
        ),
        _started(load.arrivals, plan.sessions, seed),
    )


def _started(arrivals: Arrivals, sessions: tuple[ReplaySession, ...], seed: int) -> Iterator[Session]:
    starts = start_offsets(arrivals, len(sessions), seed)
    if starts is None:
        return iter(sessions)
    return (
        ReplaySession(s.session_id, int(at), s.turns, s.shared_prefix)
        for s, at in zip(sessions, starts, strict=True)
    )


def _worker(cell: Cell, slot: WorkerSlot) -> SimWorkerSpec:
    cluster, settings = cell.cluster, cell.sim
    devices = settings.devices or str(cluster.engine_options.get("devices", _DEVICES))
    if slot.role is Role.RELAY_DECODE:
        devices = settings.relay_devices or devices
    elif slot.role is Role.MAIN_DECODE:
        devices = settings.main_devices or devices
    return SimWorkerSpec(
        name=slot.name,
        role=slot.role,
        cluster=slot.cluster.value,
        deployment=_on_this_network(cell, _deployment(cell, devices)),
        max_sequences=cluster.max_sequences,
        chunk_tokens=settings.chunk_tokens or cluster.batch_tokens,
        capacity_tokens=cluster.capacity_tokens,
    )


def _deployment(cell: Cell, devices: str) -> Deployment:
    try:
        if cell.sim.measured is not None:
            return load_measured(Path(cell.sim.measured))
        return deploy(cell.sim.model or cell.cluster.model, devices)
    except ProfileError as error:
        raise ConfigError(f"cell {cell.name}: sim: {error}") from None


def _on_this_network(cell: Cell, deployment: Deployment) -> Deployment:
    if cell.sim.workers is WorkerKind.DATACENTER:
        return deployment
    return dataclasses.replace(deployment, fabric_bytes_s=_LOOPBACK_BYTES_S)


def _believed_bytes_s(cell: Cell, profile: LinkProfile) -> float | None:
    """What the live router tells its policy at the start: the rate that the link was set to."""
    if cell.sim.line is not None:
        return None
    rate_mbit = profile.a_to_b.rate_mbit
    return 0.0 if rate_mbit is None else rate_mbit * 125_000


def line_of(cell: Cell, profile: LinkProfile, slots: tuple[WorkerSlot, ...]) -> LineModel:
    """The pool on a link of this profile (the cell's own, or what a fault makes of it)."""
    direction = profile.a_to_b
    rate = _UNSHAPED_BYTES_S if direction.rate_mbit is None else direction.rate_mbit * 1e6 / 8
    if direction.down:
        rate = 0.0
    rtt_s, loss_share = profile.rtt_ms / 1e3, mean_loss_share(direction)
    line = line_profile(cell)
    if line is not None:
        return line_model(line, rate_bytes_s=rate, rtt_s=rtt_s, loss_share=loss_share)
    senders = sum(1 for slot in slots if slot.cluster is Cluster.A)
    receivers = sum(1 for slot in slots if slot.cluster is Cluster.B)
    connections = cell.cluster.kv_connections * max(1, senders * receivers)
    relay = cell.link.driver == "relay"
    return LineModel(
        rate,
        rtt_s,
        loss_share,
        efficiency=_RELAY_EFFICIENCY if relay else _EFFICIENCY,
        connections=connections,
        keeps_warm=relay,
    )
