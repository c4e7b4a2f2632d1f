"""The wide-area line at flow level: a pool of connections, first come first served, shared by weight.

Flow i of those that hold a connection gets w_i * u with u = min(r_max, efficiency * C / sum of w), w
lognormal. All flows move by the same u, so one clock `phi` (du/dt integrated) orders their ends: flow i
ends when phi has grown by bytes_i / w_i. On top: half a round trip of propagation, slow start on a
connection that was idle, and r_max capped by TCP's loss-limited rate. Low-priority flows (back-fill)
move only while nobody else wants the line.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from harness.costs.profile import Line
from harness.sim.event_queue import EventQueue

_MSS_BYTES: Final = 1448
_INITIAL_WINDOW_BYTES: Final = 10 * _MSS_BYTES
_NOTHING: Final = 1e-12
"""Weights below this are rounding."""
_HANDSHAKE_RTTS: Final = 2
"""TCP's, and the upgrade to a WebSocket."""
_LOSS_CONSTANT: Final = 1.22  # rate = 1.22 MSS / (RTT sqrt(p)), Mathis et al.


class LineModel(msgspec.Struct, frozen=True):
    """What the pool knows of the line now; replaced while it runs by faults."""

    rate_bytes_s: float
    """Line rate."""
    rtt_s: float
    loss_share: float = 0.0
    efficiency: float = 0.92
    connection_bytes_s: float = math.inf
    connections: int = 192
    rate_sigma: float = 0.0
    slow_start: bool = True
    keeps_warm: bool = False
    """A connection is opened when none is idle (two round trips, and slow start once), and keeps its window
    from then on. False: they are there from the beginning, and an idle one slows down again, as TCP does."""

    @property
    def pool_bytes_s(self) -> float:
        """Payload that the whole pool carries when it is busy: what a measurement of the line would give."""
        return min(self.efficiency * self.rate_bytes_s, self.connections * self.flow_bytes_s)

    @property
    def flow_bytes_s(self) -> float:
        """r_max: most that a flow of weight 1 gets."""
        if self.loss_share <= 0 or self.rtt_s <= 0:
            return self.connection_bytes_s
        return min(
            self.connection_bytes_s, _LOSS_CONSTANT * _MSS_BYTES / (self.rtt_s * math.sqrt(self.loss_share))
        )


def line_model(line: Line, *, rate_bytes_s: float, rtt_s: float, loss_share: float) -> LineModel:
    """A line of this rate, round trip and loss on which a pool behaves as the profile says."""
    flow_bytes_s = line.flow_bit_s.value / 8
    return LineModel(
        rate_bytes_s=rate_bytes_s,
        rtt_s=rtt_s,
        loss_share=loss_share,
        efficiency=line.efficiency.value,
        connection_bytes_s=flow_bytes_s if flow_bytes_s > 0 else math.inf,
        connections=int(line.connections.value),
        rate_sigma=line.rate_sigma.value,
    )


class Flow(msgspec.Struct, eq=False):
    """One transfer. `sent(flow)` of the pool tells how far it is."""

    kv_bytes: int
    done: Callable[[Flow], None]
    argument: Any
    left: Callable[[Flow], None] | None = None
    weight: float = 1.0
    start_phi: float = 0.0
    tail_ns: int = 0
    """Latency after the last byte has left: propagation and what slow start cost."""
    running: bool = False
    low: bool = False
    ended: bool = False
    carried: float = 0.0
    """Bytes sent before the flow was demoted."""


class WanPool:
    """Carries flows from A to B. `done(flow)` is called when a flow's last byte has arrived."""

    def __init__(self, queue: EventQueue, line: LineModel, seed: int) -> None:
        self._queue = queue
        self._random = random.Random(seed)
        self._take(line)
        self._waiting: deque[Flow] = deque()
        self._ends: list[tuple[float, int, Flow]] = []
        self._weights = 0.0
        self._running = 0
        self._warm = 0
        """Idle connections that have been used."""
        self._low: deque[Flow] = deque()
        self._phi = 0.0
        self._at_ns = 0
        self._order = 0
        self._epoch = 0
        self._sent_bytes = 0.0

    # ------------------------------------------------------------------ what the driver asks

    def start(
        self,
        kv_bytes: int,
        done: Callable[[Flow], None],
        argument: object,
        left: Callable[[Flow], None] | None = None,
    ) -> Flow:
        """Queue `kv_bytes` for the line. `left(flow)` is called when the last byte has left."""
        flow = Flow(kv_bytes, done, argument, left)
        sigma = self.line.rate_sigma
        flow.weight = self._random.lognormvariate(0.0, sigma) if sigma > 0 else 1.0
        self._pass_time()
        if self._running < self.line.connections:
            self._admit(flow, warm=False)
        else:
            self._waiting.append(flow)
        self._plan()
        return flow

    def cancel(self, flow: Flow) -> int:
        """End a flow early; returns the bytes that had left."""
        if flow.ended:
            return flow.kv_bytes
        self._pass_time()
        sent = self._sent(flow)
        flow.ended = True
        if flow.low:
            self._low.remove(flow)
        elif flow.running:
            self._release(flow)
        else:
            self._waiting.remove(flow)
        self._plan()
        return round(sent)

    def demote(self, flow: Flow) -> None:
        """Let the flow go on only while no other wants the line."""
        if flow.ended or flow.low:
            return
        self._pass_time()
        flow.carried = self._sent(flow)
        if flow.running:
            self._release(flow)
        else:
            self._waiting.remove(flow)
        flow.low = True
        self._low.append(flow)
        self._plan()

    def change(self, line: LineModel) -> None:
        """The line is another one from now on."""
        self._pass_time()
        self._take(line)
        self._plan()

    def crossing_s(self, size_bytes: int) -> float:
        """How long a message outside the pool takes now, at an equal share of the line beside its flows."""
        rate_bytes_s = self._shared_bytes_s
        return size_bytes * (self._running + 1) / rate_bytes_s if rate_bytes_s > 0 else 0.0

    def sent(self) -> float:
        """Bytes that have left since the start."""
        self._pass_time()
        return self._sent_bytes

    def backlog_bytes(self) -> float:
        """Bytes asked for and not sent."""
        self._pass_time()
        running = sum(f.kv_bytes - self._sent(f) for _, _, f in self._ends if f.running and not f.ended)
        return (
            running + sum(f.kv_bytes for f in self._waiting) + sum(f.kv_bytes - f.carried for f in self._low)
        )

    # ------------------------------------------------------------------ flows

    def _take(self, line: LineModel) -> None:
        self.line = line
        self._flow_bytes_s = line.flow_bytes_s
        self._shared_bytes_s = line.efficiency * line.rate_bytes_s

    def _admit(self, flow: Flow, *, warm: bool) -> None:
        flow.running = True
        flow.start_phi = self._phi
        self._running += 1
        self._weights += flow.weight
        self._order += 1
        heapq.heappush(self._ends, (self._phi + flow.kv_bytes / flow.weight, self._order, flow))
        line = self.line
        tail_s = line.rtt_s / 2
        if line.keeps_warm and not warm:
            warm = self._warm > 0
            if warm:
                self._warm -= 1
            else:
                tail_s += _HANDSHAKE_RTTS * line.rtt_s
        if line.slow_start and not warm:
            tail_s += self._slow_start_s(flow.kv_bytes, flow.weight * self._unit())
        flow.tail_ns = round(tail_s * 1e9)

    def _slow_start_s(self, kv_bytes: int, rate_bytes_s: float) -> float:
        """What doubling from the initial window costs against `rate_bytes_s` from the first byte on."""
        rtt_s = self.line.rtt_s
        target = min(kv_bytes, rate_bytes_s * rtt_s)
        if target <= _INITIAL_WINDOW_BYTES:
            return 0.0
        rounds = math.log2(target / _INITIAL_WINDOW_BYTES)
        sent = 2 * target - _INITIAL_WINDOW_BYTES
        return max(0.0, rounds * rtt_s - min(sent, kv_bytes) / rate_bytes_s)

    def _release(self, flow: Flow) -> None:
        """The flow leaves its connection; the next in line takes it."""
        flow.running = False
        self._running -= 1
        self._weights -= flow.weight
        if self._running == 0:
            self._weights = 0.0  # no drift
        self._warm += 1
        while self._waiting and self._running < self.line.connections:
            self._warm -= 1
            self._admit(self._waiting.popleft(), warm=True)

    def _sent(self, flow: Flow) -> float:
        if flow.low:
            return flow.carried
        if not flow.running:
            return flow.kv_bytes if flow.ended else 0.0
        return min(flow.kv_bytes, (self._phi - flow.start_phi) * flow.weight)

    # ------------------------------------------------------------------ time

    def _unit(self) -> float:
        """u: what a flow of weight 1 gets now, bytes/s."""
        flow_bytes_s, weights = self._flow_bytes_s, self._weights
        if weights < _NOTHING:
            weights = _NOTHING
        share_bytes_s = self._shared_bytes_s / weights
        return share_bytes_s if share_bytes_s < flow_bytes_s else flow_bytes_s

    def _pass_time(self) -> None:
        now_ns = self._queue.now_ns
        elapsed_s = (now_ns - self._at_ns) * 1e-9
        self._at_ns = now_ns
        if elapsed_s <= 0:
            return
        if self._running:
            unit = self._unit()
            self._phi += unit * elapsed_s
            self._sent_bytes += unit * self._weights * elapsed_s
        elif self._low:
            flow = self._low[0]
            carried = min(float(flow.kv_bytes), flow.carried + self._low_rate(flow) * elapsed_s)
            self._sent_bytes += carried - flow.carried
            flow.carried = carried

    def _low_rate(self, flow: Flow) -> float:
        return min(self._flow_bytes_s * flow.weight, self._shared_bytes_s)

    def _plan(self) -> None:
        """Schedule the next end under the present rates."""
        self._epoch += 1
        ends = self._ends
        while ends and (ends[0][2].ended or not ends[0][2].running):
            heapq.heappop(ends)
        if self._running:
            unit = self._unit()
            if unit <= 0:
                return  # the line is down
            wait_s = max(0.0, ends[0][0] - self._phi) / unit
        elif self._low:
            rate = self._low_rate(self._low[0])
            if rate <= 0:
                return
            wait_s = (self._low[0].kv_bytes - self._low[0].carried) / rate
        else:
            return
        self._queue.at(self._queue.now_ns + math.ceil(wait_s * 1e9), self._due, self._epoch)

    def _due(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self._pass_time()
        ends = self._ends
        if not self._running:
            self._low_due()
        while ends and (ends[0][2].ended or not ends[0][2].running or ends[0][0] <= self._phi * (1 + 1e-12)):
            flow = heapq.heappop(ends)[2]
            if flow.running and not flow.ended:
                flow.ended = True
                self._finish(flow)
        self._plan()

    def _low_due(self) -> None:
        flow = self._low[0]
        if flow.kv_bytes - flow.carried < 1.0:
            self._low.popleft()
            flow.ended = True
            flow.tail_ns = round(self.line.rtt_s / 2 * 1e9)
            self._sent_off(flow)

    def _finish(self, flow: Flow) -> None:
        self._release(flow)
        self._sent_off(flow)

    def _sent_off(self, flow: Flow) -> None:
        now_ns = self._queue.now_ns
        self._queue.at(now_ns + flow.tail_ns, self._arrived, flow)
        if flow.left is not None:
            self._queue.at(now_ns, flow.left, flow)

    @staticmethod
    def _arrived(flow: Flow) -> None:
        flow.done(flow)
