"""`Simulation`: drives one policy through one cell in virtual time.

Every action becomes work on simulated workers and links; whatever comes of it is told to the policy as
an event, later by the time a message takes. Nothing here looks at modes: what differs between modes is
in the policy's configuration and in where the workers stand.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.core import Policy
from harness.policy.journal import ID_BYTES
from harness.policy.roles import Role, TransferPurpose
from harness.sim.cell import SimCell, SimFault
from harness.sim.clients import Clients, LiveSession, Load
from harness.sim.decode_clock import Instants
from harness.sim.event_queue import EventQueue
from harness.sim.observer import Observer
from harness.sim.request import SimRequest
from harness.sim.session import Session, Turn
from harness.sim.transfer import Transfer, Transfers
from harness.sim.wan import LineModel, WanPool
from harness.sim.worker import SimWorker

_OfRequest = ev.Opened | ev.TransferDone | ev.ExtendDone | ev.WorkFailed | ev.DeadlineReached | ev.ClientGone
_GARBAGE_AFTER: Final = 100_000
"""Objects between two collections: nearly all that is made here dies by reference count."""
_SAMPLES_BEFORE_HALVING: Final = 1000
"""So often the state is sampled before the rate of sampling is halved: a long run stays a small file."""

_RELAY_DECODE: Final = Role.RELAY_DECODE


class Simulation:
    """One run. The same cell, sessions and seed give the same events in the same order."""

    def __init__(
        self,
        cell: SimCell,
        sessions: Iterator[Session],
        load: Load,
        observer: Observer,
        *,
        seed: int,
        prefix: str = "",
    ) -> None:
        self.queue: Final = EventQueue()
        self.policy: Final = Policy(cell.policy)
        self.requests: dict[ev.RequestId, SimRequest] = {}
        self.workers: dict[ev.WorkerName, SimWorker] = {}
        self.arrived = 0
        self.policy_events = 0
        self._cell: Final = cell
        self._observer: Final = observer
        self._prefix: Final = prefix
        self._random = random.Random(seed)
        self.wan: Final = WanPool(self.queue, cell.line, self._random.getrandbits(64))
        self._transfers: Final = Transfers(
            self.queue,
            self.wan,
            byte_scale=cell.byte_scale,
            copy_s=cell.copy_s,
            segment_tokens=cell.segment_tokens,
            done=self._transferred,
        )
        self.clients: Final = Clients(self.queue, sessions, load, self._send, self._abandon)
        self._message_ns: Final = round(cell.message_s * 1e9)
        self._stepwise: Final = cell.segment_tokens is not None
        self._pending: deque[tuple[ev.Event, Instants | None]] = deque()
        self._handling = False
        self._instants: Instants | None = None
        self._samples = 0
        self._held_back: set[ev.WorkId] = set()
        self._before: Final[dict[type, Callable[[Any], None]]] = {
            ev.Opened: self._before_opened,
            ev.PrefillDone: self._before_prefilled,
            ev.TransferDone: self._sync,
            ev.ExtendDone: self._sync,
            ev.WorkFailed: self._sync,
            ev.DeadlineReached: self._sync,
            ev.ClientGone: self._before_gone,
        }
        self._do: Final[dict[type, Callable[[Any], None]]] = {
            act.Prefill: self._prefill,
            act.Open: self._open,
            act.Transfer: self._transfer,
            act.Demote: lambda action: self._transfers.demote(action.work),
            act.Extend: self._extend,
            act.Decode: self._decode,
            act.Cancel: self._cancel,
            act.Close: self._close,
            act.Decided: self._decided,
            act.Emit: self._emit,
            act.Finish: self._finish,
            act.Fail: self._fail,
            act.SetDeadline: self._set_deadline,
            act.Settled: self._settled,
            act.Retire: lambda action: None,  # noqa: ARG005 - an idle worker costs nothing in virtual time
        }
        self._join_workers()

    def remember(self, worker: ev.WorkerName, session: Session, turn: int, held: int) -> None:
        """Before the run: the worker has `held` tokens of this turn's context in its cache."""
        cache = self.workers[worker].cache
        cache.pin(session, turn, held)
        cache.keep(session, turn, held)
        cache.unpin(session)
        self._handle(ev.CacheEvicted(worker, session.session_id, held), None)

    def run(self) -> None:
        """To the end of the load."""
        thresholds = gc.get_threshold()
        gc.set_threshold(_GARBAGE_AFTER, *thresholds[1:])
        try:
            self.queue.run()
        finally:
            gc.set_threshold(*thresholds)

    # ------------------------------------------------------------------ cluster

    def _join_workers(self) -> None:
        cell = self._cell
        for spec in cell.workers:
            fits = spec.deployment.capacity_tokens(spec.max_sequences)
            worker = SimWorker(
                spec.name,
                spec.role,
                spec.cluster,
                spec.deployment,
                self.queue,
                self._told,
                max_sequences=spec.max_sequences,
                chunk_tokens=spec.chunk_tokens,
                capacity_tokens=min(fits, spec.capacity_tokens or fits),
                time_scale=cell.time_scale,
                fill_tail=cell.fill_tail,
                token_instants=cell.token_instants and spec.role is not Role.PREFILL,
            )
            self.workers[spec.name] = worker
            worker.away_ns = self._away_ns(worker, cell.line)
            kv_bytes = spec.deployment.kv_bytes_per_token * cell.byte_scale
            self._handle(
                ev.WorkerJoined(spec.name, spec.role, spec.cluster, spec.max_sequences, kv_bytes), None
            )
        line = cell.line
        believed = line.pool_bytes_s if cell.believed_bytes_s is None else cell.believed_bytes_s
        self._handle(ev.LinkMeasured(believed, round(line.rtt_s * 1e9)), None)
        for fault in cell.faults:
            self.queue.at(fault.at_ns, self._strike, fault)
        if cell.sample_s is not None:
            self.queue.at(0, self._sample, None)
        self.clients.start()

    def _strike(self, fault: SimFault) -> None:
        if fault.line is not None:
            self.wan.change(fault.line)
            for worker in self.workers.values():
                worker.away_ns = self._away_ns(worker, fault.line)
        if fault.pause is not None and (worker := self.workers[fault.pause.worker]).alive:
            worker.pause(fault.pause.until_ns)
        if fault.slowdown is not None and (worker := self.workers[fault.slowdown.worker]).alive:
            worker.slow_down(fault.slowdown.factor)
        if fault.kill is not None and (worker := self.workers[fault.kill]).alive:
            self.kill(worker)

    def kill(self, worker: SimWorker) -> None:
        """The worker dies now; the policy hears of it as soon as a message could."""
        now_ns = self.queue.now_ns
        for request in self.requests.values():
            for work, owner in request.works.items():
                if owner is worker and (told := worker.progress(work, now_ns)) is not None:
                    self._told(worker, *told)
        worker.die()
        self._transfers.worker_lost(worker)
        self._told(worker, ev.WorkerLost(worker.name, "killed"), None)

    def _sample(self, _: None) -> None:
        assert self._cell.sample_s is not None
        alive = [worker for worker in self.workers.values() if worker.alive]
        self._observer.sample(self.queue.now_ns, alive, self.wan)
        self._samples += 1
        if len(self.queue):
            interval_s = self._cell.sample_s * 2 ** (self._samples // _SAMPLES_BEFORE_HALVING)
            self.queue.at(self.queue.now_ns + round(interval_s * 1e9), self._sample, None)

    # ------------------------------------------------------------------ clients

    def _send(self, live: LiveSession, turn: Turn) -> None:
        now_ns = self.queue.now_ns
        session = live.session
        request = SimRequest(
            f"{self._prefix}{session.session_id}/{turn.turn}",
            live,
            session,
            turn,
            now_ns,
            turn.prompt_tokens,
            turn.output_tokens,
            warmup=self.clients.warmup(live, now_ns),
        )
        self.requests[request.id] = request
        self.arrived += 1
        cell = self._cell
        if cell.token_instants:
            request.token_instants = []
        if cell.cancel_share and self._random.random() < cell.cancel_share:
            self.queue.at(now_ns + round(cell.cancel_after_s * 1e9), self._gone, request)
        arrived = ev.RequestArrived(request.id, session.session_id, request.prompt_tokens, request.max_tokens)
        if self._message_ns:  # to the front, and the answer's way back
            self.queue.at(now_ns + 2 * self._message_ns, self._heard, (arrived, None))
        else:
            self._handle(arrived, None)

    def _gone(self, request: SimRequest) -> None:
        if request.end_ns is None:
            self._handle(ev.ClientGone(request.id), None)

    def _abandon(self, live: LiveSession, turn: Turn, error: str) -> None:
        now_ns = self.queue.now_ns
        self._observer.unsent(live.session, turn, now_ns, error, warmup=self.clients.warmup(live, now_ns))

    def _end(self, request: SimRequest, status: str, error: str | None) -> None:
        if request.end_ns is not None:
            return
        request.end_ns = self.queue.now_ns
        request.status = status
        request.error = error
        self.clients.ended(request.live, request.turn.turn, ok=status in ("ok", "cancelled"))

    # ------------------------------------------------------------------ events

    def _told(self, worker: SimWorker, event: ev.Event, instants: Instants | None) -> None:
        """A worker says something; the policy hears it a message later."""
        delay_ns = worker.away_ns
        if not delay_ns:
            self._handle(event, instants)
            return
        if instants is not None:
            instants = instants + delay_ns
        self.queue.at(self.queue.now_ns + delay_ns, self._heard, (event, instants))

    def _heard(self, argument: tuple[ev.Event, Instants | None]) -> None:
        self._handle(*argument)

    def _away_ns(self, worker: SimWorker, line: LineModel) -> int:
        return self._message_ns + (round(line.rtt_s / 2 * 1e9) if worker.cluster == "B" else 0)

    def _handle(self, event: ev.Event, instants: Instants | None) -> None:
        """Tell the policy and do what it answers. Events that come of it at this instant wait their turn."""
        pending = self._pending
        if self._handling:
            pending.append((event, instants))
            return
        self._handling = True
        try:
            while True:
                before = self._before.get(type(event))
                if before is not None:
                    before(event)
                self._step(event, instants)
                if not pending:
                    return
                event, instants = pending.popleft()
        finally:
            self._handling = False

    def _sync(self, event: _OfRequest) -> None:
        """The policy must know how far the relay is before it hears this."""
        request = self.requests.get(event.request)
        if request is not None and request.decoding is not None:
            worker, work = request.decoding
            told = worker.progress(work, self.queue.now_ns - worker.away_ns)
            if told is not None:
                self._step(*told)

    def _before_gone(self, event: ev.ClientGone) -> None:
        self._sync(event)
        self._end(self.requests[event.request], "cancelled", None)

    def _before_prefilled(self, event: ev.PrefillDone) -> None:
        request = self.requests.get(event.request)
        if request is not None:
            request.cached_tokens = event.cached
            request.prefill_done_ns = self.queue.now_ns

    def _before_opened(self, event: ev.Opened) -> None:
        request = self.requests.get(event.request)
        if request is None:
            return
        if request.decoding is not None:
            self._sync(event)
        if request.pipeline in ("append", "colocated"):
            request.cached_tokens = event.held

    def _step(self, event: ev.Event, instants: Instants | None) -> None:
        self.policy_events += 1
        now_ns = self.queue.now_ns
        actions = self.policy.handle(now_ns, event)
        if self._observer.wants_decisions:
            self._observer.decided(now_ns, event, actions)
        self._instants = instants
        do = self._do
        for action in actions:
            do[type(action)](action)

    # ------------------------------------------------------------------ actions on workers

    def _prefill(self, action: act.Prefill) -> None:
        self._start(action, prefill=True)

    def _open(self, action: act.Open) -> None:
        self._start(action, prefill=False)

    def _start(self, action: act.Prefill | act.Open, *, prefill: bool) -> None:
        request, worker = self.requests[action.request], self.workers[action.worker]
        work = action.work
        request.works[work] = worker
        session, turn, positions = request.session, request.turn.turn, action.positions
        opening = (work, request.id, session, turn, positions, prefill)
        if self._stepwise and worker.cluster == "B":  # the prompt's ids share the line with KV
            ids_ns = round(self.wan.crossing_s(positions * ID_BYTES) * 1e9)
            worker.inbox_ns = max(worker.inbox_ns, self.queue.now_ns + worker.away_ns) + ids_ns
        self._at_worker(worker, worker.open, *opening)

    def _at_worker(self, worker: SimWorker, call: Callable[..., object], *arguments: object) -> None:
        """Make a call when the message has reached the worker, if that still lives."""
        delay_ns = worker.away_ns
        if delay_ns:
            at_ns = max(self.queue.now_ns + delay_ns, worker.inbox_ns)
            self.queue.at(at_ns, self._reached, (worker, call, arguments))
        elif self._stepwise or worker.awake_ns:
            self._reached((worker, call, arguments))
        elif worker.alive:
            call(*arguments)

    def _reached(self, argument: tuple[SimWorker, Callable[..., object], tuple[object, ...]]) -> None:
        worker, call, arguments = argument
        if not worker.alive:
            return
        if worker.awake_ns > self.queue.now_ns:
            self.queue.at(worker.awake_ns, self._reached, argument)
        elif self._stepwise:
            worker.between_steps(call, *arguments)
        else:
            call(*arguments)

    def _extend(self, action: act.Extend) -> None:
        request, worker = self.requests[action.request], self.workers[action.worker]
        request.works[action.work] = worker
        self._at_worker(worker, worker.extend, action.work, action.seq, action.p1)

    def _decode(self, action: act.Decode) -> None:
        request, worker = self.requests[action.request], self.workers[action.worker]
        work, first = action.work, action.first
        request.works[work] = worker
        end, total = request.prompt_tokens + first, request.max_tokens - first
        if worker.role is _RELAY_DECODE:
            request.decoding = (worker, work)
            request.relayed = True
        elif request.relayed and self._cell.handoff_extra_s > 0:
            extra_s = max(0.0, self._random.gauss(self._cell.handoff_extra_s, self._cell.handoff_extra_sd_s))
            at_ns = self.queue.now_ns + worker.away_ns + round(extra_s * 1e9)
            self._held_back.add(work)
            self.queue.at(at_ns, self._resume, (worker, work, action.seq, end, first, total))
            return
        self._at_worker(worker, worker.decode, work, action.seq, end, first, total)

    def _resume(self, argument: tuple[SimWorker, int, int, int, int, int]) -> None:
        worker, work, *rest = argument
        if work in self._held_back:
            self._held_back.discard(work)
            if worker.alive:
                worker.decode(work, *rest)

    def _transfer(self, action: act.Transfer) -> None:
        request = self.requests[action.request]
        source, target = self.workers[action.source], self.workers[action.target]
        if action.purpose is TransferPurpose.MAIN and request.transfer_start_ns is None:
            request.transfer_start_ns = self.queue.now_ns
        if source.alive and target.alive:
            self._transfers.start(action, source, target)

    def _transferred(self, transfer: Transfer) -> None:
        action = transfer.action
        request = self.requests.get(action.request)
        if request is not None and action.purpose is TransferPurpose.MAIN:
            request.main_kv_bytes += transfer.kv_bytes
            assert request.transfer_start_ns is not None
            request.transfer_ns = self.queue.now_ns - request.transfer_start_ns
        copied_ns = round(self._cell.copy_s * 1e9) if action.purpose is TransferPurpose.HANDOFF else 0
        self._told(
            transfer.target, ev.TransferDone(action.request, action.work, transfer.kv_bytes, copied_ns), None
        )

    def _cancel(self, action: act.Cancel) -> None:
        request = self.requests[action.request]
        if request.decoding is not None and request.decoding[1] == action.work:
            request.decoding = None
        if action.work in self._transfers:
            sent = self._transfers.cancel(action.work)
            if sent is not None:
                self._handle(ev.Cancelled(action.request, action.work, sent), None)
            return
        worker = request.works.get(action.work)
        if worker is None:
            return  # a transfer that has landed: its news is on the way
        self._at_worker(worker, self._stop, worker, action)

    def _stop(self, worker: SimWorker, action: act.Cancel) -> None:
        if action.work in self._held_back:
            self._held_back.discard(action.work)
        elif not worker.cancel(action.work):
            return  # it has ended: its result is on the way
        self._told(worker, ev.Cancelled(action.request, action.work), None)

    def _close(self, action: act.Close) -> None:
        worker = self.workers[action.worker]
        self._at_worker(worker, worker.close, action.work, action.seq, action.keep)

    # ------------------------------------------------------------------ actions towards the client

    def _decided(self, action: act.Decided) -> None:
        self.requests[action.request].pipeline = action.pipeline.value

    def _emit(self, action: act.Emit) -> None:
        request = self.requests[action.request]
        if request.end_ns is not None:
            return
        now_ns = self.queue.now_ns
        first_ns, last_ns = now_ns, now_ns
        instants = self._instants
        if instants is not None and len(instants):
            first_ns, last_ns = int(instants[0]), int(instants[-1])
            if request.token_instants is not None:
                request.token_instants.append(instants)
        if request.first_token_ns is None:
            request.first_token_ns = first_ns
        if action.role is _RELAY_DECODE:
            request.relay_tokens += action.count
        elif request.relayed and request.last_token_ns is not None:
            request.stall_ns = max(request.stall_ns, first_ns - request.last_token_ns)
            request.relayed = False
        request.last_token_ns = last_ns
        request.output_tokens += action.count

    def _finish(self, action: act.Finish) -> None:
        self._end(self.requests[action.request], "ok", None)

    def _fail(self, action: act.Fail) -> None:
        self._end(self.requests[action.request], "error", action.error)

    def _set_deadline(self, action: act.SetDeadline) -> None:
        self.queue.set_alarm(action.request, action.at_ns, self._deadline)

    def _deadline(self, name: ev.RequestId) -> None:
        self._handle(ev.DeadlineReached(name), None)

    def _settled(self, action: act.Settled) -> None:
        name = action.request
        self.queue.clear_alarm(name)
        request = self.requests.pop(name)
        request.settled = True
        self._observer.ended(request)
