"""The worker's desk on the emulated engine: commands in, events out, one call after the other."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import pytest

from adapters.engines import load_engine
from harness.cluster.desk import Desk
from harness.cluster.messages import Command, Sampling
from harness.engine import EngineOptions
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.actions import Action

OPTIONS = EngineOptions(
    model="llama-3-8b",
    devices="h100x8",
    time_scale=1e-6,
    byte_scale=1e-4,
    max_sequences=3,
    max_context_tokens=256,
)
IDS = array("I", range(300, 360))


class Bench:
    """A desk, and what it has told."""

    def __init__(self, capacity_tokens: int | None = None) -> None:
        self.told: list[ev.Event] = []
        options = msgspec.structs.replace(OPTIONS, capacity_tokens=capacity_tokens)
        self.engine = load_engine("emulated", options)
        self.desk = Desk("md", self.engine, self._tell, lambda seq, held: None)

    def _tell(self, event: ev.Event, ids: Sequence[int]) -> None:
        self.told.append(event)

    def do(self, action: Action, ids: Sequence[int] = (), session: str = "s") -> list[ev.Event]:
        """What this command, and all that the engine then computes, leads to."""
        before = len(self.told)
        sampling = Sampling(4, 1, 0.0, ())
        self.desk.do(Command(action, session=session, sampling=sampling), array("I", ids))  # type: ignore[arg-type]
        while self.engine.has_work():
            self.desk.take(self.engine.step())
        self.desk.take(self.engine.step())
        return self.told[before:]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def blob_of(ids: array[int], p0: int, p1: int) -> bytes:
    other = load_engine("emulated", OPTIONS)
    other.open(1, ids)
    other.extend(1, ids[: len(ids) - 1])
    while other.has_work():
        other.step()
    return other.export_kv(1, p0, p1)


def test_a_later_turn_waits_for_the_kv_of_its_earlier_turn_and_then_hits_it(bench: Bench) -> None:
    first, second = IDS[:40], IDS[:60]
    assert bench.do(act.Open("r1", 1, "md", 39), first) == [ev.Opened("r1", 1, 0)]
    assert bench.do(act.Open("r2", 2, "md", 59), second) == []
    bench.desk.join(1, 0, 39, blob_of(first, 0, 39), array("I"))
    assert bench.told[-1] == ev.Opened("r2", 2, 39)


def test_another_session_and_another_prompt_do_not_wait(bench: Bench) -> None:
    bench.do(act.Open("r1", 1, "md", 39), IDS[:40])
    assert bench.do(act.Open("r2", 2, "md", 59), IDS, session="other") == [ev.Opened("r2", 2, 0)]
    assert bench.do(act.Open("r3", 3, "md", 19), array("I", range(400, 420))) == [ev.Opened("r3", 3, 0)]


def test_a_transfer_that_comes_to_nothing_lets_the_later_turn_go_on(bench: Bench) -> None:
    bench.do(act.Open("r1", 1, "md", 39), IDS[:40])
    bench.do(act.Open("r2", 2, "md", 59), IDS)
    told = bench.do(act.Close("r1", 9, "md", 1, keep=True))
    assert told == [ev.Closed("r1", 9, 0), ev.Opened("r2", 2, 0)]


def test_an_opening_without_a_slot_waits_for_one_and_may_be_cancelled(bench: Bench) -> None:
    for i in range(3):
        bench.do(
            act.Open(f"r{i}", i, "md", 9), array("I", range(300 + 20 * i, 310 + 20 * i)), session=f"s{i}"
        )
    assert bench.do(act.Open("late", 7, "md", 9), IDS[:10], session="late") == []
    assert bench.do(act.Open("later", 8, "md", 9), IDS[:10], session="later") == []
    assert bench.do(act.Cancel("late", 7)) == [ev.Cancelled("late", 7)]
    assert bench.do(act.Close("r0", 9, "md", 0, keep=False)) == [
        ev.Closed("r0", 9, 0),
        ev.Opened("later", 8, 0),
    ]


def test_prefill_reports_its_own_hit_and_what_it_computed(bench: Bench) -> None:
    assert bench.do(act.Prefill("r1", 1, "p", 39), IDS[:40]) == [ev.PrefillDone("r1", 1, 0, 39)]
    assert bench.do(act.Close("r1", 2, "p", 1, keep=True)) == [ev.Closed("r1", 2, 39)]
    assert bench.do(act.Prefill("r2", 3, "p", 59), IDS) == [ev.PrefillDone("r2", 3, 39, 20)]


def test_decode_goes_on_from_where_the_sequence_stands_not_from_where_it_is_believed_to(bench: Bench) -> None:
    bench.do(act.Open("r1", 1, "md", 39), IDS[:40])
    assert bench.do(act.Extend("r1", 2, "md", 1, 0, 30), IDS[:30]) == [ev.ExtendDone("r1", 2)]
    told = bench.do(act.Decode("r1", 3, "md", 1, 20, 0), IDS[20:40])
    tokens = [e for e in told if isinstance(e, ev.TokensDecoded)]
    assert [t.first for t in tokens] == [0, 1, 2, 3]
    assert tokens[-1].finish == "length"


def test_decode_from_beyond_what_is_held_fails_in_one_line(bench: Bench) -> None:
    bench.do(act.Open("r1", 1, "md", 39), IDS[:40])
    (failed,) = bench.do(act.Decode("r1", 3, "md", 1, 39, 0), IDS[39:40])
    assert isinstance(failed, ev.WorkFailed)
    assert failed.error == "md: asked to go on from position 39, but only 0 are held"


def test_closing_an_unknown_sequence_and_cancelling_ended_work_are_harmless(bench: Bench) -> None:
    assert bench.do(act.Close("r1", 5, "md", 77, keep=True)) == [ev.Closed("r1", 5, 0)]
    assert bench.do(act.Cancel("r1", 99)) == []


def test_a_reset_drops_every_sequence_and_everything_that_waits(bench: Bench) -> None:
    bench.do(act.Open("r1", 1, "md", 39), IDS[:40])
    bench.do(act.Open("r2", 2, "md", 59), IDS)
    bench.desk.reset()
    assert bench.do(act.Open("r3", 1, "md", 39), IDS[:40]) == [ev.Opened("r3", 1, 0)]


def test_what_will_never_fit_fails_at_once_instead_of_waiting_for_room_that_nobody_frees() -> None:
    bench = Bench(capacity_tokens=32)
    (failed,) = bench.do(act.Open("r1", 1, "md", 39), IDS[:40])
    assert isinstance(failed, ev.WorkFailed)
    assert bench.do(act.Open("r2", 2, "md", 9), IDS[:10]) == [ev.Opened("r2", 2, 0)]


def test_what_needs_little_room_does_not_overtake_what_needs_much() -> None:
    bench = Bench(capacity_tokens=32)
    bench.do(act.Open("r1", 1, "md", 9), IDS[:10])
    assert bench.do(act.Open("large", 2, "md", 29), array("I", range(400, 430)), session="l") == []
    assert bench.do(act.Open("small", 3, "md", 9), array("I", range(500, 510)), session="m") == []
    assert bench.do(act.Cancel("large", 2)) == [ev.Cancelled("large", 2), ev.Opened("small", 3, 0)]
