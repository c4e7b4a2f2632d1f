"""Where candidates compete: deployments, the line's behaviour, and sessions at any rate."""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from harness.costs.deployment import Deployment, deployment_of
from harness.costs.profile import Accelerator, Line, ModelProfile
from harness.policy.config import MODES
from harness.policy.roles import Role
from harness.sim.cell import SimCell, SimWorkerSpec
from harness.sim.clients import Load, Pace
from harness.sim.planning.candidate import Candidate
from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.setting import Setting, prime, sessions_of
from harness.sim.session import PlainSession, PlainTurn, Session
from harness.sim.simulation import Simulation
from harness.sim.tally import Tally
from harness.sim.wan import LineModel, line_model

_CHUNK_TOKENS = 16_384
_MAX_SEQUENCES = 4000
_SLACK = 1000
_DEADLINE_S = 600.0


class Traffic(msgspec.Struct, frozen=True):
    """Means over the requests, for the screening arithmetic."""

    prompt_tokens: float
    miss_tokens: float
    """What P computes and MD lacks."""
    output_tokens: float


class Arena(Protocol):
    """Must be picklable: candidates are evaluated on other processes."""

    def traffic(self) -> Traffic: ...

    def deployment(self, role: Role, devices: int) -> Deployment: ...

    def line(self, candidate: Candidate) -> LineModel: ...

    def run(self, candidate: Candidate, rate: float, requests: int, seed: int) -> Tally:
        """Simulate `requests` at `rate` requests a second."""
        ...


def cell_of(arena: Arena, candidate: Candidate) -> SimCell:
    """The candidate as the simulator's cell."""
    mode = MODES[candidate.mode]
    routing = msgspec.structs.replace(
        mode.policy.routing, relay_bound_ms=candidate.relay_bound_ms, affinity_slack=_SLACK
    )
    policy = msgspec.structs.replace(mode.policy, routing=routing, deadline_s=_DEADLINE_S)
    groups = (
        ("prefill", Role.PREFILL, "A", candidate.prefill_workers, candidate.prefill_devices),
        ("relay", Role.RELAY_DECODE, "A", candidate.relay_workers, candidate.relay_devices),
        ("main", Role.MAIN_DECODE, "B", candidate.main_workers, candidate.main_devices),
    )
    workers = tuple(
        SimWorkerSpec(
            f"{name}-{i}", role, cluster, arena.deployment(role, devices), _MAX_SEQUENCES, _CHUNK_TOKENS
        )
        for name, role, cluster, count, devices in groups
        for i in range(count)
    )
    return SimCell(policy, workers, arena.line(candidate), sample_s=None)


class ReportArena(msgspec.Struct, frozen=True):
    """The report's setting, with the calibration of the reproduction."""

    calibration: Calibration
    hit_shift: float = 0.0
    """Added to every turn's hit, for the sensitivity."""

    def traffic(self) -> Traffic:
        c = self.calibration
        length, output = c("latency.length_tokens"), c("latency.output_tokens")
        sessions, _ = sessions_of(c, Setting("pdd", 1.0, 4000, 0, 1), hit_shift=self.hit_shift)
        turns = [t for s in sessions for t in s.turns if t.output_tokens]
        head = c("latency.head_tokens")  # other sessions keep it warm
        missing = [t.prompt_tokens - (head if t.base is None else t.kept_tokens) for t in turns]
        return Traffic(length, float(np.mean(missing)), output)

    def deployment(self, role: Role, devices: int) -> Deployment:
        return self.calibration.deployment("h200" if role is Role.MAIN_DECODE else "h100", devices)

    def line(self, candidate: Candidate) -> LineModel:
        """A dearer line has proportionally more connections to fill it."""
        line = self.calibration.line("latency_line")
        factor = candidate.line_gbit * 1e9 / 8 / line.rate_bytes_s
        return msgspec.structs.replace(
            line,
            rate_bytes_s=line.rate_bytes_s * factor,
            connections=max(1, round(line.connections * factor)),
        )

    def run(self, candidate: Candidate, rate: float, requests: int, seed: int) -> Tally:
        warmup = requests // 8
        setting = Setting(candidate.mode, rate, requests, warmup, seed)
        sessions, cached = sessions_of(self.calibration, setting, hit_shift=self.hit_shift)
        tally = Tally()
        load = Load(Pace.EVERY_TURN, warmup_ns=round(warmup / rate * 1e9))
        sim = Simulation(cell_of(self, candidate), iter(sessions), load, tally, seed=seed)
        prime(sim, cached)
        sim.run()
        return tally


class TraceArena(msgspec.Struct, frozen=True):
    """A trace of one's own on profiles of one's own."""

    sessions: tuple[PlainSession, ...]
    """In order of start; their starts are drawn anew for every rate."""
    model: ModelProfile
    a: Accelerator
    b: Accelerator
    line_profile: Line
    rtt_s: float
    arrival_cv2: float = 4.0

    def traffic(self) -> Traffic:
        turns = [t for s in self.sessions for t in s.turns]
        prompt = float(np.mean([t.prompt_tokens for t in turns]))
        miss = float(np.mean([t.prompt_tokens - t.kept_tokens for t in turns]))
        return Traffic(prompt, miss, float(np.mean([t.output_tokens for t in turns])))

    def deployment(self, role: Role, devices: int) -> Deployment:
        return deployment_of(self.model, self.b if role is Role.MAIN_DECODE else self.a, devices)

    def line(self, candidate: Candidate) -> LineModel:
        return line_model(
            self.line_profile, rate_bytes_s=candidate.line_gbit * 1e9 / 8, rtt_s=self.rtt_s, loss_share=0.0
        )

    def run(self, candidate: Candidate, rate: float, requests: int, seed: int) -> Tally:
        chosen, count = [], 0
        while count < requests:  # a short trace is gone through again, under other names
            for session in self.sessions:
                chosen.append(session._replace(session_id=f"{session.session_id}#{count}"))
                count += len(session.turns)
                if count >= requests:
                    break
        rng = np.random.default_rng([seed, 0x91A])
        per_session = count / len(chosen)
        shape = 1 / self.arrival_cv2
        gaps = rng.gamma(shape, per_session / (shape * rate), len(chosen))
        starts = np.cumsum(gaps) * (count / rate) / gaps.sum()
        sessions: list[Session] = [
            session._replace(start_ns=round(at * 1e9))
            for session, at in zip(chosen, starts.tolist(), strict=True)
        ]
        tally = Tally()
        load = Load(warmup_sessions=len(chosen) // 8)
        Simulation(cell_of(self, candidate), iter(sessions), load, tally, seed=seed).run()
        return tally


def plain(session: Session) -> PlainSession:
    """A session of a replay plan without its token ids."""
    return PlainSession(
        session.session_id,
        session.start_ns,
        tuple(
            PlainTurn(
                t.turn,
                t.prompt_tokens,
                t.output_tokens,
                t.base,
                t.kept_tokens,
                t.keeps_answer,
                t.base_output_tokens,
                t.delay_ns,
                t.after,
                t.arrival_ns,
                t.expected_hit_tokens,
                t.tenant,
            )
            for t in session.turns
        ),
        session.shared_prefix,
    )
