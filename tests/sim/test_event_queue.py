"""Virtual time: calls in order, alarms that ring only while they stand."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from harness.sim.event_queue import EventQueue


def test_calls_come_in_order_of_instant_and_then_of_scheduling() -> None:
    queue, seen = EventQueue(), list[str]()
    for at_ns, name in ((5, "c"), (3, "a"), (5, "d"), (3, "b")):
        queue.at(at_ns, seen.append, name)
    queue.run()
    assert seen == ["a", "b", "c", "d"]
    assert queue.now_ns == 5


def test_a_cleared_alarm_neither_rings_nor_keeps_the_run_going() -> None:
    queue, seen = EventQueue(), list[str]()
    queue.set_alarm("x", 1000, seen.append)
    queue.at(10, queue.clear_alarm, "x")
    queue.run()
    assert seen == []
    assert queue.now_ns == 10
    assert len(queue) == 0


def test_an_alarm_rings_after_the_calls_of_its_instant_and_once() -> None:
    queue, seen = EventQueue(), list[str]()
    queue.set_alarm("alarm", 7, seen.append)
    queue.at(7, seen.append, "call")
    queue.at(9, seen.append, "later")
    queue.run()
    assert seen == ["call", "alarm", "later"]


@given(st.integers(0, 2**32))
def test_alarms_ring_as_a_list_of_all_of_them_would_say(seed: int) -> None:
    rng = random.Random(seed)
    queue = EventQueue()
    standing: dict[str, int] = {}
    rung: list[tuple[int, str]] = []
    expected: list[tuple[int, str]] = []

    def ring(name: str) -> None:
        rung.append((queue.now_ns, name))

    def act(_: None) -> None:
        expected.extend(sorted((at, n) for n, at in standing.items() if at < queue.now_ns))
        for name in [n for n, at in standing.items() if at < queue.now_ns]:
            del standing[name]
        name = rng.choice("abcdef")
        if rng.random() < 0.3:
            queue.clear_alarm(name)
            standing.pop(name, None)
        else:
            standing[name] = queue.now_ns + rng.choice([5, 17, 40])
            queue.set_alarm(name, standing[name], ring)

    for at_ns in sorted(rng.randrange(300) for _ in range(40)):
        queue.at(at_ns, act, None)
    queue.run()
    expected.extend(sorted((at, n) for n, at in standing.items()))
    assert [at for at, _ in rung] == [at for at, _ in expected]
    assert sorted(rung) == sorted(expected)
