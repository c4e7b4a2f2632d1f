"""The driver keeps the policy's promises in virtual time, whatever happens, and always in the same way."""

from __future__ import annotations

import os
import random

import msgspec
import pytest

from harness.policy import events as ev
from harness.policy.config import MODES
from harness.policy.roles import Role
from harness.sim.cell import Pause, SimFault, Slowdown
from harness.sim.clients import Load, Pace
from harness.sim.simulation import Simulation
from tests.policy.schedule import random_config
from tests.sim.cells import LINE, Witness, cell, chain, check_rest, random_sessions

_FIRST_SEED = int(os.environ.get("PDDBENCH_SEED", "0"))
_SCHEDULES = 120


def run_random(seed: int, *, deaths: bool) -> tuple[Simulation, Witness]:
    rng = random.Random(seed)
    policy = msgspec.structs.replace(random_config(rng), deadline_s=30.0, settle_s=2.0)
    made = cell(
        policy,
        p=rng.choice([1, 2]),
        rld=rng.choice([0, 1, 2]),
        md=rng.choice([1, 2]),
        line=msgspec.structs.replace(
            LINE,
            rate_bytes_s=rng.choice([2e4, 1e6]),
            rate_sigma=rng.choice([0.0, 1.0]),
            slow_start=rng.random() < 0.5,
        ),
        capacity_tokens=rng.choice([None, 900]),
        max_sequences=rng.choice([3, 50]),
        cancel_share=rng.choice([0.0, 0.2]),
        cancel_after_s=0.3,
        handoff_extra_s=rng.choice([0.0, 0.05]),
        handoff_extra_sd_s=0.01,
        copy_s=rng.choice([0.0, 0.02]),
        message_s=rng.choice([0.0, 0.001]),
        fill_tail=rng.random() < 0.5,
        sample_s=rng.choice([None, 0.5]),
        segment_tokens=rng.choice([None, 40]),
    )
    if deaths:
        faults = [
            SimFault(rng.randrange(10**9), kill=rng.choice(made.workers).name)
            for _ in range(rng.randrange(1, 4))
        ]
        faults.append(SimFault(rng.randrange(10**9), line=msgspec.structs.replace(LINE, rate_bytes_s=0.0)))
        faults.append(SimFault(10**9 + rng.randrange(10**9), line=LINE))
        for _ in range(rng.randrange(3)):
            at_ns, name = rng.randrange(2 * 10**9), rng.choice(made.workers).name
            faults.append(SimFault(at_ns, pause=Pause(name, at_ns + rng.randrange(10**9))))
            faults.append(SimFault(rng.randrange(2 * 10**9), slowdown=Slowdown(name, rng.uniform(0.5, 4))))
        made = msgspec.structs.replace(made, faults=tuple(faults))
    load = rng.choice(
        [Load(), Load(Pace.CLOSED, live_sessions=3), Load(stop_ns=10**9), Load(Pace.EVERY_TURN)]
    )
    witness = Witness()
    sim = Simulation(made, random_sessions(rng, 12), load, witness, seed=seed)
    sim.run()
    return sim, witness


@pytest.mark.parametrize("deaths", [False, True], ids=["calm", "deaths"])
def test_random_runs_end_with_every_promise_kept(deaths: bool) -> None:
    for seed in range(_FIRST_SEED, _FIRST_SEED + _SCHEDULES):
        try:
            sim, witness = run_random(seed, deaths=deaths)
            check_rest(sim, deaths=deaths)
            assert len(witness.ended_requests) == sim.arrived
            for request in witness.ended_requests:
                assert request.end_ns is not None
                if request.status == "ok":
                    assert request.output_tokens == request.max_tokens
                    instants = request.instants().tolist()
                    assert instants == sorted(instants)
                    assert len(instants) == request.max_tokens
        except Exception as error:
            error.add_note(f"replay: PDDBENCH_SEED={seed} pytest tests/sim/test_simulation.py (first seed)")
            raise


def test_the_same_seed_gives_the_same_bits() -> None:
    logs = [msgspec.msgpack.encode(run_random(4711, deaths=True)[1].log) for _ in range(2)]
    assert logs[0] == logs[1]


def test_without_deaths_the_ledger_claims_nothing_that_a_worker_does_not_hold() -> None:
    """It may claim less: a shorter branch of a session that was closed last."""
    exact = claims = 0
    for seed in range(20):
        sim, _ = run_random(seed, deaths=False)
        for worker in sim.workers.values():
            for session_id, entry in worker.cache._entries.items():
                held = sim.policy.dispatch.ledger.held(session_id).get(worker.name, 0)
                assert held <= max(run.held for run in entry.runs), seed
                claims += 1
                exact += held in [run.held for run in entry.runs]
    assert exact > 0.9 * claims


@pytest.mark.parametrize("mode", MODES)
def test_a_session_hits_what_its_earlier_turns_left(mode: str) -> None:
    witness = Witness()
    sim = Simulation(
        cell(mode),
        iter([chain("s", 0, [(1000, 10), (20, 10), (20, 10)], think_ns=10**9)]),
        Load(),
        witness,
        seed=1,
    )
    sim.run()
    check_rest(sim, deaths=False)
    first, second, third = witness.ended_requests
    assert first.cached_tokens == 0
    if mode in ("colocated", "ppd"):  # the answer's own KV stays, but for its last token
        assert second.cached_tokens == 1009
    else:  # P holds the prompt less its last token
        assert second.cached_tokens == 999
    assert third.cached_tokens == second.cached_tokens + 30


def test_a_mode_that_keeps_decoders_in_a_sends_nothing_across() -> None:
    sim = Simulation(cell("idc"), iter([chain("s", 0, [(100, 10)])]), Load(), Witness(), seed=1)
    sim.run()
    assert sim.wan.sent() == 0


def test_without_a_decode_cache_the_whole_prompt_crosses_again() -> None:
    policy = msgspec.structs.replace(MODES["xdc"].policy, decode_radix_cache=False)
    session = [chain("s", 0, [(100, 10), (20, 10)])]
    sims = {}
    for name, config in (("with", MODES["xdc"].policy), ("without", policy)):
        sims[name] = Simulation(cell(config), iter(session), Load(), Witness(), seed=1)
        sims[name].run()
    assert sims["without"].wan.sent() == pytest.approx((99 + 129) * 100)
    assert sims["with"].wan.sent() == pytest.approx((99 + 20) * 100)


def test_a_relayed_answer_has_no_hole_and_its_switch_is_felt() -> None:
    slow = msgspec.structs.replace(LINE, rate_bytes_s=2e4)
    witness = Witness()
    sim = Simulation(cell("pdd", line=slow), iter([chain("s", 0, [(100, 1000)])]), Load(), witness, seed=1)
    sim.run()
    (request,) = witness.ended_requests
    assert request.relay_tokens > 100
    assert request.output_tokens == 1000
    recomputed_ns = (request.relay_tokens + 1) * 1e6  # a millisecond each on this device
    assert request.stall_ns == pytest.approx(20e6 + recomputed_ns, abs=3e6)


def test_workers_that_move_kv_between_steps_wait_for_the_step_under_way() -> None:
    """MD decodes in steps of a millisecond: what arrives within one is joined at its end."""
    ended = {}
    for segment_tokens in (None, 1024):
        witness = Witness()
        sessions = iter([chain("busy", 0, [(50, 3000)]), chain("s", 1_500_000_000, [(100, 10)])])
        made = cell("xdc", segment_tokens=segment_tokens)
        sim = Simulation(made, sessions, Load(), witness, seed=1)
        sim.run()
        check_rest(sim, deaths=False)
        landed = [at for at, e, _ in witness.log if isinstance(e, ev.TransferDone) and e.request == "s/0"]
        ended[segment_tokens] = landed[0]
        busy, _ = witness.ended_requests[::-1]
        steps = {
            t - 10_000_000 for t in busy.instants().tolist()
        }  # as MD sees them, half a round trip earlier
        assert (landed[0] - 10_000_000 in steps) == (segment_tokens is not None)
    assert 3e6 < ended[1024] - ended[None] < 5e6


def test_a_worker_that_dies_costs_no_answer_while_another_is_up() -> None:
    for role, name in ((Role.PREFILL, "p0"), (Role.RELAY_DECODE, "rld2"), (Role.MAIN_DECODE, "md4")):
        witness = Witness()
        made = cell("pdd", p=2, rld=2, md=2, faults=(SimFault(300_000_000, kill=name),))
        assert any(w.name == name and w.role is role for w in made.workers)
        sim = Simulation(
            made, (chain(f"s{i}", i * 20_000_000, [(200, 300)]) for i in range(20)), Load(), witness, seed=1
        )
        sim.run()
        assert [r.status for r in witness.ended_requests] == ["ok"] * 20, [
            r.error for r in witness.ended_requests
        ]
