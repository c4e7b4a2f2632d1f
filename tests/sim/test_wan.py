"""The pool carries every byte once, at the rates it promises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.sim.event_queue import EventQueue
from harness.sim.wan import Flow, LineModel, WanPool

LINE = LineModel(rate_bytes_s=1000.0, rtt_s=0.1, efficiency=1.0, connections=100, slow_start=False)


class Field:
    """A pool, and when each flow arrived (seconds)."""

    def __init__(self, line: LineModel = LINE, seed: int = 1) -> None:
        self.queue = EventQueue()
        self.pool = WanPool(self.queue, line, seed)
        self.arrived: dict[object, float] = {}

    def start_at(self, at_s: float, name: str, kv_bytes: int) -> None:
        self.queue.at(round(at_s * 1e9), lambda _: self.pool.start(kv_bytes, self.landed, name), None)

    def landed(self, flow: Flow) -> None:
        self.arrived[flow.argument] = self.queue.now_ns / 1e9


def test_a_flow_alone_takes_its_bytes_over_the_rate_and_half_a_round_trip() -> None:
    field = Field()
    field.start_at(0, "a", 500)
    field.queue.run()
    assert field.arrived["a"] == pytest.approx(0.55)


def test_equal_flows_share_and_the_rest_speeds_up_when_one_ends() -> None:
    field = Field()
    field.start_at(0, "short", 100)
    field.start_at(0, "long", 500)
    field.queue.run()
    assert field.arrived["short"] == pytest.approx(0.2 + 0.05)
    assert field.arrived["long"] == pytest.approx(0.6 + 0.05)


def test_one_connection_gets_no_more_than_its_limit() -> None:
    field = Field(
        LineModel(rate_bytes_s=1000.0, rtt_s=0.1, efficiency=1.0, connection_bytes_s=50.0, slow_start=False)
    )
    field.start_at(0, "a", 500)
    field.queue.run()
    assert field.arrived["a"] == pytest.approx(10.05)


def test_beyond_the_pool_flows_wait_in_order() -> None:
    field = Field(LineModel(rate_bytes_s=1000.0, rtt_s=0.0, efficiency=1.0, connections=1, slow_start=False))
    for i in range(3):
        field.start_at(0.001 * i, str(i), 100)
    field.queue.run()
    assert [field.arrived[str(i)] for i in range(3)] == pytest.approx([0.1, 0.2, 0.3])


def test_loss_limits_a_connection_as_tcp_does() -> None:
    line = LineModel(rate_bytes_s=1e9, rtt_s=0.05, loss_share=0.01, efficiency=1.0, slow_start=False)
    assert line.flow_bytes_s == pytest.approx(1.22 * 1448 / (0.05 * math.sqrt(0.01)))


def test_slow_start_costs_round_trips_on_a_cold_connection_only() -> None:
    line = LineModel(rate_bytes_s=1e8, rtt_s=0.1, efficiency=1.0, connections=1)
    field = Field(line)
    field.start_at(0, "cold", 10**7)
    field.start_at(0.01, "warm", 10**7)  # takes the connection over
    field.queue.run()
    assert 0.1 + 0.05 + 0.4 < field.arrived["cold"] < 0.1 + 0.05 + 1.0
    assert field.arrived["warm"] == pytest.approx(0.2 + 0.05, abs=0.01)


def test_a_cancelled_flow_tells_what_it_sent_and_gives_way() -> None:
    field = Field()
    flows: list[Flow] = []
    field.queue.at(0, lambda _: flows.append(field.pool.start(1000, field.landed, "gone")), None)
    field.start_at(0, "other", 1000)
    sent: list[int] = []
    field.queue.at(10**9, lambda _: sent.append(field.pool.cancel(flows[0])), None)
    field.queue.run()
    assert sent == [500]
    assert "gone" not in field.arrived
    assert field.arrived["other"] == pytest.approx(1.0 + 0.5 + 0.05)


def test_a_demoted_flow_moves_only_while_nobody_else_wants_the_line() -> None:
    field = Field()
    flows: list[Flow] = []
    field.queue.at(0, lambda _: flows.append(field.pool.start(1000, field.landed, "low")), None)
    field.queue.at(5 * 10**8, lambda _: field.pool.demote(flows[0]), None)
    field.start_at(0.6, "normal", 1000)
    field.queue.run()
    assert field.arrived["normal"] == pytest.approx(1.6 + 0.05)
    assert field.arrived["low"] == pytest.approx(2.0 + 0.05)


def test_a_line_that_is_down_carries_nothing_until_it_is_back() -> None:
    field = Field()
    field.start_at(0, "a", 1000)
    field.queue.at(5 * 10**8, lambda _: field.pool.change(LineModel(0.0, 0.1, efficiency=1.0)), None)
    field.queue.at(10 * 10**9, lambda _: field.pool.change(LINE), None)
    field.queue.run()
    assert field.arrived["a"] == pytest.approx(10.5 + 0.05)


@settings(deadline=None)  # a busy machine is no failure
@given(
    flows=st.lists(
        st.tuples(st.floats(0, 5), st.integers(1, 5000), st.sampled_from(["keep", "cancel", "demote"])),
        min_size=1,
        max_size=25,
    ),
    sigma=st.sampled_from([0.0, 1.5]),
    connections=st.integers(1, 5),
    limit=st.sampled_from([math.inf, 120.0]),
)
def test_every_byte_is_sent_once_and_none_faster_than_the_line(
    flows: list[tuple[float, int, str]], sigma: float, connections: int, limit: float
) -> None:
    field = Field(
        LineModel(
            1000.0, 0.1, efficiency=0.8, connections=connections, rate_sigma=sigma, connection_bytes_s=limit
        )
    )
    started: dict[str, Flow] = {}
    cut: dict[str, int] = {}

    def act(argument: tuple[str, int, str]) -> None:
        name, kv_bytes, fate = argument
        started[name] = field.pool.start(kv_bytes, field.landed, name)
        if fate == "cancel":
            field.queue.at(
                field.queue.now_ns + 10**9,
                lambda _: cut.update({name: field.pool.cancel(started[name])}),
                None,
            )
        elif fate == "demote":
            field.queue.at(field.queue.now_ns + 10**9, lambda _: field.pool.demote(started[name]), None)

    for i, (at_s, kv_bytes, fate) in enumerate(flows):
        field.queue.at(round(at_s * 1e9), act, (str(i), kv_bytes, fate))
    field.queue.run()
    whole = sum(kv for i, (_, kv, _) in enumerate(flows) if str(i) in field.arrived)
    parts = sum(n for name, n in cut.items() if name not in field.arrived)
    assert len(field.arrived) + sum(1 for n in cut if n not in field.arrived) == len(flows)
    assert field.pool.sent() == pytest.approx(whole + parts, abs=2 * len(flows))
    assert field.pool.backlog_bytes() == 0
    assert field.pool.sent() <= 800.0 * field.queue.now_ns / 1e9 + 2 * len(flows)


def test_a_connection_that_keeps_its_window_is_opened_once() -> None:
    line = LineModel(rate_bytes_s=1e6, rtt_s=0.1, efficiency=1.0, connections=4, keeps_warm=True)
    field = Field(line)
    for at_s, name in ((0, "cold"), (10, "warm"), (10, "second"), (20, "again"), (20, "both")):
        field.start_at(at_s, name, 50_000)
    field.queue.run()
    alone_s = 0.05 + 0.05  # its bytes, and half a round trip
    assert field.arrived["cold"] > alone_s + 0.2
    assert field.arrived["warm"] - 10 == pytest.approx(2 * 0.05 + 0.05)
    assert field.arrived["second"] > 10 + 0.15 + 0.2
    assert field.arrived["again"] == field.arrived["both"] == pytest.approx(20 + 0.15)
