"""Single decisions of the policy, each with the smallest history that leads to it."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.chooser import HandoffChooser
from harness.policy.config import MODES, HandoffConfig, PolicyConfig, RoutingConfig
from harness.policy.core import Policy
from harness.policy.ledger import CacheLedger
from harness.policy.phase import TRANSITIONS, IllegalEventError, Phase
from harness.policy.roles import HandoffMode, HandoffPayload, Pipeline, Role
from harness.policy.roster import Roster, Worker
from harness.policy.wan import WanEstimate

MS = 1_000_000


def policy(config: PolicyConfig, *, relays: int = 1, mains: int = 1, rate: float = 1e6) -> Policy:
    made = Policy(config)
    made.handle(0, ev.LinkMeasured(rate, 20 * MS))
    made.handle(0, ev.WorkerJoined("p", Role.PREFILL, "A", 8, 2000.0))
    for i in range(relays):
        made.handle(0, ev.WorkerJoined(f"rld{i}", Role.RELAY_DECODE, "A", 2, 2000.0))
    for i in range(mains):
        made.handle(0, ev.WorkerJoined(f"md{i}", Role.MAIN_DECODE, "B", 8, 2000.0))
    return made


def pipeline(actions: tuple[act.Action, ...]) -> Pipeline:
    (decided,) = [a for a in actions if isinstance(a, act.Decided)]
    return decided.pipeline


def arrive(
    made: Policy, request: str, prompt: int, session: str = "s", now_ns: int = 0
) -> tuple[act.Action, ...]:
    return made.handle(now_ns, ev.RequestArrived(request, session, prompt, 100))


def pdd(**routing: float | None) -> PolicyConfig:
    return msgspec.structs.replace(MODES["pdd"].policy, routing=RoutingConfig(**routing))  # type: ignore[arg-type]


def test_a_long_delta_is_relayed_and_a_short_one_goes_direct() -> None:
    made = policy(pdd(relay_bound_ms=100.0))
    assert pipeline(arrive(made, "long", 1000, "a")) is Pipeline.RELAYED  # 2 MB at 1 MB/s
    made = policy(pdd(relay_bound_ms=100.0))
    assert pipeline(arrive(made, "short", 20, "b")) is Pipeline.DIRECT  # 40 kB


def test_the_estimate_counts_the_queue_in_front_not_only_the_own_bytes() -> None:
    made = policy(pdd(relay_bound_ms=100.0))
    actions = arrive(made, "big", 1000, "a")
    p, main = (next(a for a in actions if isinstance(a, kind)) for kind in (act.Prefill, act.Open))
    assert isinstance(p, act.Prefill)
    assert isinstance(main, act.Open)
    for opened in [a for a in actions if isinstance(a, act.Open)]:
        made.handle(0, ev.Opened("big", opened.work, 0))
    made.handle(0, ev.PrefillDone("big", p.work, 0, 999))  # 2 MB are now queued for the line
    assert pipeline(arrive(made, "short", 20, "b")) is Pipeline.RELAYED
    # A second later half of it has drained, two seconds later all of it.
    assert pipeline(arrive(made, "later", 20, "c", now_ns=2500 * MS)) is Pipeline.DIRECT


def test_the_relay_admits_only_so_many_and_the_rest_goes_direct() -> None:
    made = policy(pdd(relay_bound_ms=0.0, relay_slots=2))
    got = [pipeline(arrive(made, f"r{i}", 100, f"s{i}")) for i in range(3)]
    assert got == [Pipeline.RELAYED, Pipeline.RELAYED, Pipeline.DIRECT]


def test_md_that_holds_less_than_believed_brings_the_relay_in_after_all() -> None:
    made = policy(pdd(relay_bound_ms=500.0))
    made.dispatch.ledger.tell("md0", "s", 900)
    actions = arrive(made, "r", 1000)
    assert pipeline(actions) is Pipeline.DIRECT
    main = next(a for a in actions if isinstance(a, act.Open))
    assert pipeline(made.handle(1, ev.Opened("r", main.work, 0))) is Pipeline.RELAYED


def test_append_prefills_at_md_only_when_md_holds_enough() -> None:
    made = policy(MODES["ppd"].policy)
    assert pipeline(arrive(made, "cold", 1000, "cold")) is Pipeline.DIRECT
    made.dispatch.ledger.tell("md0", "warm", 950)
    actions = arrive(made, "warm", 1000, "warm")
    assert pipeline(actions) is Pipeline.APPEND
    assert not any(isinstance(a, act.Prefill) for a in actions)


def test_without_a_main_worker_the_relay_ends_the_answer() -> None:
    made = policy(MODES["pdd"].policy, mains=0)
    assert pipeline(arrive(made, "r", 1000)) is Pipeline.LOCAL


def test_without_a_prefill_worker_the_request_fails_in_one_line() -> None:
    made = policy(MODES["pdd"].policy)
    made.handle(0, ev.WorkerLost("p", "gone"))
    (fail,) = [a for a in arrive(made, "r", 10) if isinstance(a, act.Fail)]
    assert fail.error == "no prefill worker is up"
    assert not made.requests


def test_a_session_goes_back_to_the_worker_that_holds_it_unless_that_is_overloaded() -> None:
    roster = Roster()
    for name in ("a", "b"):
        roster.join(Worker(name, Role.MAIN_DECODE, "B", 8, 2000.0))
    placed = roster.place(Role.MAIN_DECODE, {"b": 100}, slack=2)
    assert placed is not None
    assert placed.name == "b"
    roster["b"].sequences = 3
    placed = roster.place(Role.MAIN_DECODE, {"b": 100}, slack=2)
    assert placed is not None
    assert placed.name == "a"


def test_a_draining_worker_gets_nothing_new_and_retires_when_idle() -> None:
    made = policy(MODES["xdc"].policy, mains=2)
    actions = arrive(made, "r", 10)
    main = next(a for a in actions if isinstance(a, act.Open))
    assert not made.handle(1, ev.WorkerDraining(main.worker))  # busy
    other = next(a for a in arrive(made, "r2", 10) if isinstance(a, act.Open))
    assert other.worker != main.worker
    assert made.handle(2, ev.WorkerDraining(other.worker)) == ()
    idle = policy(MODES["xdc"].policy, mains=2)
    assert idle.handle(0, ev.WorkerDraining("md1")) == (act.Retire("md1"),)


def test_dynamic_handoff_has_hysteresis() -> None:
    config = HandoffConfig(
        mode=HandoffMode.DYNAMIC, busy_share=0.75, spare_share=0.5, catch_up_threshold_tokens=10
    )
    chooser = HandoffChooser(config)
    loads = [0.6, 0.8, 0.6, 0.6, 0.4, 0.6]
    modes = [chooser.choose(100, load) for load in loads]
    up, one = HandoffMode.CATCH_UP, HandoffMode.ONE_SHOT
    assert modes == [up, one, one, one, up, up]
    assert chooser.choose(10, 0.1) is one  # few ids: not worth it


def test_kv_payload_is_always_one_shot() -> None:
    config = HandoffConfig(payload=HandoffPayload.KV_TRANSFER, mode=HandoffMode.CATCH_UP)
    assert HandoffChooser(config).choose(1000, 0.0) is HandoffMode.ONE_SHOT


def test_the_ledger_holds_what_was_told_and_forgets_a_lost_worker() -> None:
    ledger = CacheLedger()
    ledger.tell("a", "s", 10)
    ledger.tell("b", "s", 20)
    ledger.tell("a", "s", 0)
    assert ledger.held("s") == {"b": 20}
    ledger.forget("b")
    assert ledger.held("s") == {}


def test_the_wan_estimate_follows_what_really_crosses() -> None:
    wan = WanEstimate()
    assert wan.transfer_ns(0, 1e6) == 0  # nothing is known
    wan.measured(1e6, 10 * MS)
    assert wan.transfer_ns(0, 1e6) == 1010 * MS
    for i in range(40):  # the line carries half of what it was believed to
        wan.started(i * 1000 * MS, i, 5e5)
        wan.ended((i * 1000 + 1000) * MS, i, 500_000)
    assert wan.transfer_ns(100_000 * MS, 1e6) == pytest.approx(2010 * MS, rel=0.05)


def test_a_cut_transfer_leaves_no_queue_behind() -> None:
    wan = WanEstimate()
    wan.measured(1e6, 0)
    wan.started(0, 1, 1e6)
    wan.ended(0, 1, 0)
    assert wan.transfer_ns(0, 1e6) == 1000 * MS


@pytest.mark.parametrize(
    "event",
    [
        ev.RequestArrived("r", "s", 10, 100),  # twice
        ev.TransferDone("r", 1, 10),  # work 1 is the prefill
        ev.Cancelled("r", 1),  # never cancelled
        ev.WorkerJoined("p", Role.PREFILL, "A", 8, 2000.0),  # twice
        ev.RequestArrived("empty", "s", 0, 1),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_event_that_cannot_be_raises_and_changes_nothing(event: ev.Event) -> None:
    made = policy(MODES["xdc"].policy)
    arrive(made, "r", 10)
    before = str(made.requests["r"])
    with pytest.raises(IllegalEventError):
        made.handle(1, event)
    assert str(made.requests["r"]) == before
    assert list(made.requests) == ["r"]


def test_tokens_out_of_order_are_illegal() -> None:
    made = policy(MODES["colocated"].policy)
    made.handle(0, ev.WorkerJoined("solo", Role.COLOCATED, "A", 8, 2000.0))
    (opening,) = [a for a in arrive(made, "r", 10) if isinstance(a, act.Open)]
    (decode,) = [a for a in made.handle(1, ev.Opened("r", opening.work, 0)) if isinstance(a, act.Decode)]
    made.handle(2, ev.TokensDecoded("r", decode.work, 0, 2))
    with pytest.raises(IllegalEventError, match="2 of 100 are out"):
        made.handle(3, ev.TokensDecoded("r", decode.work, 3, 1))


def test_late_messages_are_counted_and_change_nothing() -> None:
    made = policy(MODES["xdc"].policy)
    assert made.handle(0, ev.TokensDecoded("nobody", 77, 0, 1)) == ()
    assert made.stale_events == 1


def test_every_kind_of_event_has_its_handler() -> None:
    assert set(Policy(PolicyConfig())._on) == set(get_args(ev.Event))


def test_every_phase_but_the_last_ends_somewhere() -> None:
    reachable = {Phase.LOADING, Phase.STREAMING}
    for _ in Phase:
        reachable |= {t for p in reachable for targets in TRANSITIONS[p].values() for t in targets}
    assert reachable == set(Phase)
    assert not TRANSITIONS[Phase.SETTLED]
