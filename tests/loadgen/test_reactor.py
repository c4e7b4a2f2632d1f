from __future__ import annotations

import _socket
import sys

import pytest
from gevent.event import Event

from harness.loadgen.reactor import EpollReactor, HubReactor, now_ns

KINDS = [HubReactor] + ([EpollReactor] if sys.platform == "linux" else [])
MS = 1_000_000


@pytest.fixture(params=KINDS)
def reactor(request):
    errors = []
    made = request.param(errors.append)
    made.errors = errors
    yield made
    made.close()


def run_until(event: Event) -> None:
    assert event.wait(10)


def test_callbacks_run_in_order_of_their_instants_and_never_before(reactor):
    done = Event()
    ran = []
    start = now_ns()
    for offset in (30, 10, 20):
        reactor.call_at(start + offset * MS, lambda offset=offset: ran.append((offset, now_ns())))
    reactor.call_at(start + 40 * MS, done.set)
    run_until(done)
    assert [offset for offset, _ in ran] == [10, 20, 30]
    assert all(at >= start + offset * MS for offset, at in ran)


def test_a_cancelled_timer_does_not_run(reactor):
    done = Event()
    ran = []
    reactor.call_at(now_ns() + MS, lambda: ran.append(1)).cancel()
    reactor.call_at(now_ns() + 5 * MS, done.set)
    run_until(done)
    assert not ran


def test_a_timer_set_from_a_callback_for_the_past_runs(reactor):
    done = Event()
    reactor.call_at(now_ns(), lambda: reactor.call_at(now_ns() - MS, done.set))
    run_until(done)


def test_a_handler_hears_of_data_and_of_room_and_no_more_after_unwatch(reactor):
    done = Event()
    ours, theirs = _socket.socketpair()
    ours.setblocking(False)
    masks = []

    def handler(mask):
        masks.append(mask)
        if mask & 4:
            reactor.want_write(ours.fileno(), wanted=False)
            theirs.send(b"x")
        if mask & 1:
            ours.recv(10)
            reactor.unwatch(ours.fileno())
            theirs.send(b"y")
            reactor.call_at(now_ns() + 5 * MS, done.set)

    reactor.watch(ours.fileno(), handler)
    reactor.want_write(ours.fileno(), wanted=True)
    run_until(done)
    assert masks[0] & 4
    assert sum(1 for mask in masks if mask & 1) == 1
    ours.close()
    theirs.close()


def test_sockets_are_served_while_the_schedule_is_behind(reactor):
    """A schedule that has fallen behind must not starve the answers."""
    done = Event()
    ours, theirs = _socket.socketpair()
    ours.setblocking(False)
    ran = [0]
    seen = []

    def overdue():
        ran[0] += 1
        if ran[0] < 100_000 and not seen:
            reactor.call_at(now_ns() - MS, overdue)

    def handler(_mask):
        ours.recv(10)
        seen.append(ran[0])
        done.set()

    reactor.watch(ours.fileno(), handler)
    theirs.send(b"x")
    reactor.call_at(now_ns(), overdue)
    run_until(done)
    if isinstance(reactor, EpollReactor):
        assert seen[0] < 1000
    ours.close()
    theirs.close()


def test_idle_work_is_done_in_pieces(reactor):
    done = Event()
    pieces = []

    def piece():
        pieces.append(1)
        if len(pieces) == 5:
            done.set()
        else:
            reactor.when_idle(piece)

    assert reactor.when_idle(piece)
    run_until(done)


def test_idle_work_is_bounded(reactor):
    accepted = 0
    while reactor.when_idle(lambda: None):
        accepted += 1
        assert accepted < 10_000
    assert accepted > 100


def test_what_a_callback_raises_is_told(reactor):
    done = Event()

    def fail():
        reactor.call_at(now_ns() + MS, done.set)
        raise ValueError("mine")

    reactor.call_at(now_ns(), fail)
    run_until(done)
    assert [str(error) for error in reactor.errors] == ["mine"]
