from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen.sessions import SessionTurns
from tests.loadgen.plans import Session, Turn, chained


def turns(*made: Turn) -> SessionTurns:
    return SessionTurns(Session("s", 0, made))


def names(due) -> list[tuple[int, int]]:
    return [(d.due_ns, d.turn.turn) for d in due]


def test_roots_are_due_at_their_offsets_from_the_sessions_start():
    session = turns(Turn(0, 1, 1), Turn(1, 1, 1, delay_ns=50))
    assert names(session.start(1000)) == [(1000, 0), (1050, 1)]


def test_think_time_counts_from_the_end_of_the_answer():
    session = SessionTurns(chained("s", 2, delay_ns=300))
    session.start(0)
    assert names(session.ended(0, 5000)) == [(5300, 1)]


def test_fan_out_turns_become_due_together_and_the_join_waits_for_the_last():
    session = turns(
        Turn(0, 1, 1),
        Turn(1, 1, 1, after=(0,), delay_ns=1),
        Turn(2, 1, 1, after=(0,), delay_ns=2),
        Turn(3, 1, 1, after=(1, 2), delay_ns=10),
    )
    session.start(0)
    assert names(session.ended(0, 100)) == [(101, 1), (102, 2)]
    assert session.ended(2, 900) == []
    assert names(session.ended(1, 400)) == [(910, 3)]


def test_failure_abandons_all_that_needs_the_answer_and_nothing_else():
    session = turns(
        Turn(0, 1, 1),
        Turn(1, 1, 1, after=(0,)),
        Turn(2, 1, 1, after=(0,)),
        Turn(3, 1, 1, after=(1,)),
        Turn(4, 1, 1, after=(2, 3)),
        Turn(5, 1, 1, after=(2,)),
    )
    session.start(0)
    session.ended(0, 1)
    assert [turn.turn for turn in session.failed(1)] == [3, 4]
    assert names(session.ended(2, 5)) == [(5, 5)]
    session.ended(5, 6)
    assert session.over


def test_a_turn_that_is_not_open_cannot_end():
    session = SessionTurns(chained("s", 2))
    session.start(0)
    with pytest.raises(KeyError):
        session.ended(1, 0)
    assert names(session.ended(0, 7)) == [(7, 1)]


@given(st.data())
def test_every_turn_is_due_once_or_abandoned_once_whatever_fails(data):
    count = data.draw(st.integers(1, 12))
    made = tuple(
        Turn(i, 1, 1, after=tuple(sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else ()))
        for i in range(count)
    )
    session = SessionTurns(Session("s", 0, made))
    open_turns = {d.turn.turn for d in session.start(0)}
    seen = set(open_turns)
    now = 0
    while open_turns:
        assert not session.over
        turn = data.draw(st.sampled_from(sorted(open_turns)))
        open_turns.discard(turn)
        now += 1
        if data.draw(st.booleans()):
            new = {t.turn for t in session.failed(turn)}
            assert not new & open_turns
        else:
            new = {d.turn.turn for d in session.ended(turn, now)}
            open_turns |= new
        assert not new & seen
        seen |= new
    assert session.over
    assert seen == set(range(count))
