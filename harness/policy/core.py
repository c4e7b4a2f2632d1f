"""`Policy`: events in, actions out. Checks every event against the table before it changes anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.config import PolicyConfig
from harness.policy.dispatch import Dispatcher
from harness.policy.lifecycle import Lifecycle
from harness.policy.phase import TRANSITIONS, IllegalEventError, Phase, Trigger
from harness.policy.request import LegName, Request, Work, WorkKind
from harness.policy.roles import Role, TransferPurpose
from harness.policy.roster import Worker

_LOST = {
    LegName.PREFILL: Trigger.PREFILL_LOST,
    LegName.RELAY: Trigger.RELAY_LOST,
    LegName.MAIN: Trigger.MAIN_LOST,
}
_LANDED = {
    TransferPurpose.RELAY: Trigger.RELAY_LANDED,
    TransferPurpose.MAIN: Trigger.MAIN_LANDED,
    TransferPurpose.HANDOFF: Trigger.HANDOFF_LANDED,
}

# A member of an enum costs ten times a global in Python 3.11; these are read for every event.
_SETTLING, _SETTLED = Phase.SETTLING, Phase.SETTLED
_OPEN, _PREFILL, _TRANSFER = WorkKind.OPEN, WorkKind.PREFILL, WorkKind.TRANSFER
_DECODE, _CLOSE = WorkKind.DECODE, WorkKind.CLOSE
_RELAY = LegName.RELAY
_RELAY_OPENED, _MAIN_OPENED, _PREFILLED = Trigger.RELAY_OPENED, Trigger.MAIN_OPENED, Trigger.PREFILLED
_RELAY_TOKENS, _MAIN_TOKENS = Trigger.RELAY_TOKENS, Trigger.MAIN_TOKENS


class Policy:
    """The state machine of one cluster.

    `handle` raises IllegalEventError, and changes nothing, for an event that cannot be: of a kind
    that the named work does not end with, out of order, or outside the transition table."""

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.requests: dict[ev.RequestId, Request] = {}
        self.stale_events = 0
        """Events about work or requests that had ended; harmless, but worth watching."""
        self._d = Dispatcher(config)
        self._life = Lifecycle(config, self._d)
        self._on: Final[dict[type, Callable[[Any], None]]] = {
            ev.RequestArrived: self._arrived,
            ev.Opened: self._opened,
            ev.PrefillDone: self._prefilled,
            ev.TransferDone: self._transferred,
            ev.TokensDecoded: self._tokens,
            ev.ExtendDone: self._extended,
            ev.Closed: self._closed,
            ev.Cancelled: self._cancelled,
            ev.WorkFailed: self._failed,
            ev.ClientGone: self._ended_from_outside,
            ev.DeadlineReached: self._ended_from_outside,
            ev.CacheEvicted: self._evicted,
            ev.WorkerJoined: self._joined,
            ev.WorkerDraining: self._draining,
            ev.WorkerLost: self._worker_lost,
            ev.LinkMeasured: self._measured,
        }

    @property
    def dispatch(self) -> Dispatcher:
        """The books: roster, cache ledger and WAN estimate."""
        return self._d

    def handle(self, now_ns: int, event: ev.Event) -> tuple[act.Action, ...]:
        """Take one event at `now_ns` (never decreasing) and answer what is to be done, in order."""
        self._d.now_ns = now_ns
        self._on[type(event)](event)
        return self._d.take()

    # --------------------------------------------------------- events of a request

    def _arrived(self, event: ev.RequestArrived) -> None:
        if event.request in self.requests:
            raise IllegalEventError(f"request {event.request}: arrived twice")
        if event.prompt_tokens < 1 or event.max_tokens < 1:
            raise IllegalEventError(
                f"request {event.request}: needs at least one prompt token and one answer token"
            )
        req = Request(event.request, event.session, event.prompt_tokens, event.max_tokens)
        self.requests[event.request] = req
        self._d.say(act.SetDeadline(req.id, self._d.now_ns + int(self.config.deadline_s * 1e9)))
        req.phase = self._life.start(req)
        self._settle_if_done(req)

    def _opened(self, event: ev.Opened) -> None:
        found = self._work(event.request, event.work, _OPEN)
        if found is None:
            return
        req, work = found
        relay = work.leg is _RELAY
        if work.cancelled:
            self._d.work_ended(req, event.work)
        else:
            allowed = self._check(req, _RELAY_OPENED if relay else _MAIN_OPENED)
            self._d.work_ended(req, event.work)
            leg = req.relay if relay else req.main
            if leg is not None:
                leg.opened = True
                leg.held = min(event.held, req.goal)
                self._enter(
                    req, allowed, self._life.on_relay_opened(req) if relay else self._life.on_main_opened(req)
                )
        self._settle_if_done(req)

    def _prefilled(self, event: ev.PrefillDone) -> None:
        found = self._work(event.request, event.work, _PREFILL)
        if found is None:
            return
        req, work = found
        if work.cancelled:
            self._d.work_ended(req, event.work)
        else:
            allowed = self._check(req, _PREFILLED)
            self._d.work_ended(req, event.work)
            self._enter(req, allowed, self._life.on_prefilled(req))
        self._settle_if_done(req)

    def _transferred(self, event: ev.TransferDone) -> None:
        found = self._work(event.request, event.work, _TRANSFER)
        if found is None:
            return
        req, work = found
        if work.cancelled:
            self._d.work_ended(req, event.work, event.kv_bytes)
        else:
            assert work.purpose is not None
            allowed = self._check(req, _LANDED[work.purpose])
            self._d.work_ended(req, event.work, event.kv_bytes)
            match work.purpose:
                case TransferPurpose.RELAY:
                    phase = self._life.on_relay_landed(req)
                case TransferPurpose.MAIN:
                    phase = self._life.on_main_landed(req)
                case TransferPurpose.HANDOFF:
                    phase = self._life.on_handoff_landed(req)
                case _:
                    assert_never(work.purpose)
            self._enter(req, allowed, phase)
        self._settle_if_done(req)

    def _tokens(self, event: ev.TokensDecoded) -> None:
        found = self._work(event.request, event.work, _DECODE)
        if found is None:
            return
        req, work = found
        finish = event.finish
        if not work.cancelled:
            relay = work.leg is _RELAY
            allowed = self._check(req, _RELAY_TOKENS if relay else _MAIN_TOKENS)
            count, out = event.count, req.emitted
            if event.first != out or count < 0 or out + count > req.max_tokens:
                raise IllegalEventError(
                    f"request {req.id}: tokens [{event.first}, {event.first + count}) from "
                    f"{work.worker}, "
                    f"but {out} of {req.max_tokens} are out"
                )
            if finish is not None:
                self._d.work_ended(req, event.work)
            elif out + count == req.max_tokens:
                # The decoder's own word comes in a moment; do not hand a finished answer over.
                finish = "length"
                self._d.supersede(req, event.work)
            on_tokens = self._life.on_relay_tokens if relay else self._life.on_main_tokens
            self._enter(req, allowed, on_tokens(req, count, finish))
        elif finish is not None:
            self._d.work_ended(req, event.work)
        else:
            self.stale_events += 1
        self._settle_if_done(req)

    def _extended(self, event: ev.ExtendDone) -> None:
        found = self._work(event.request, event.work, WorkKind.EXTEND)
        if found is None:
            return
        req, work = found
        if work.cancelled:
            self._d.work_ended(req, event.work)
        else:
            allowed = self._check(req, Trigger.MAIN_EXTENDED)
            self._d.work_ended(req, event.work)
            self._enter(req, allowed, self._life.on_main_extended(req, work.span))
        self._settle_if_done(req)

    def _closed(self, event: ev.Closed) -> None:
        found = self._work(event.request, event.work, _CLOSE)
        if found is None:
            return
        req, work = found
        self._d.work_ended(req, event.work)
        self._d.ledger.tell(work.worker, req.session, event.held)
        self._d.sequence_ended(req, work.seq)
        self._settle_if_done(req)

    def _cancelled(self, event: ev.Cancelled) -> None:
        found = self._work(event.request, event.work, None)
        if found is None:
            return
        req, work = found
        if not work.cancelled:
            raise IllegalEventError(f"request {req.id}: {work.kind} {event.work} was never cancelled")
        self._d.work_ended(req, event.work, event.kv_bytes)
        self._settle_if_done(req)

    def _failed(self, event: ev.WorkFailed) -> None:
        found = self._work(event.request, event.work, None)
        if found is None:
            return
        req, work = found
        trigger = self._loss(work)
        if trigger is not None:
            self._check(req, trigger)
        self._d.work_ended(req, event.work)
        if work.kind is WorkKind.CLOSE:
            self._d.ledger.tell(work.worker, req.session, 0)
            self._d.sequence_ended(req, work.seq)
        if trigger is not None:
            self._lose(req, trigger, event.error)
        self._settle_if_done(req)

    def _ended_from_outside(self, event: ev.ClientGone | ev.DeadlineReached) -> None:
        req = self.requests.get(event.request)
        gone = isinstance(event, ev.ClientGone)
        if req is None or (gone and req.phase is Phase.SETTLING):
            self.stale_events += 1
            return
        trigger = Trigger.CLIENT_GONE if gone else Trigger.DEADLINE
        allowed = self._check(req, trigger)
        self._enter(req, allowed, self._life.on_client_gone(req) if gone else self._life.on_deadline(req))
        self._settle_if_done(req)

    # ------------------------------------------------------------- events of workers and the line

    def _evicted(self, event: ev.CacheEvicted) -> None:
        self._d.ledger.tell(event.worker, event.session, event.held)

    def _measured(self, event: ev.LinkMeasured) -> None:
        self._d.wan.measured(event.rate_bytes_s, event.rtt_ns)

    def _joined(self, event: ev.WorkerJoined) -> None:
        if event.worker in self._d.roster:
            raise IllegalEventError(f"worker {event.worker}: joined twice")
        self._d.roster.join(
            Worker(event.worker, event.role, event.cluster, event.slots, event.kv_bytes_per_token)
        )

    def _draining(self, event: ev.WorkerDraining) -> None:
        if event.worker not in self._d.roster:
            self.stale_events += 1
            return
        self._d.roster.drain(event.worker)
        if self._d.roster[event.worker].sequences == 0:
            self._d.say(act.Retire(event.worker))

    def _worker_lost(self, event: ev.WorkerLost) -> None:
        """Take the worker off every book first, so that nothing is asked of it; then tell the requests."""
        if event.worker not in self._d.roster:
            self.stale_events += 1
            return
        self._d.roster.leave(event.worker)
        self._d.ledger.forget(event.worker)
        for req in list(self.requests.values()):
            lost = {
                t
                for w in req.works.values()
                if event.worker in (w.worker, w.source)
                if (t := self._loss(w, event.worker))
            }
            for leg in (req.prefill, req.relay, req.main):
                if leg is not None and leg.worker == event.worker:
                    lost.add(_LOST[leg.name])
            if not lost and event.worker not in req.sequences.values():
                continue
            for work_id in [i for i, w in req.works.items() if event.worker in (w.worker, w.source)]:
                self._forget_work(req, work_id, event.worker)
            for seq in [s for s, name in req.sequences.items() if name == event.worker]:
                del req.sequences[seq]
            for trigger in sorted(lost):
                if trigger in TRANSITIONS[req.phase] and self._still_lost(req, trigger, event.worker):
                    self._lose(req, trigger, f"{event.worker}: {event.error}")
            self._settle_if_done(req)

    def _forget_work(self, req: Request, work_id: ev.WorkId, lost: ev.WorkerName) -> None:
        """Work on a lost worker ends without a word. A receiver that lives keeps its transfer on the
        leg, so that the loss of the source is seen as an interrupted transfer."""
        work = req.works[work_id]
        leg = req.leg(work.leg)
        interrupted = work.kind is WorkKind.TRANSFER and work.worker != lost and not work.cancelled
        self._d.work_ended(req, work_id)
        if interrupted and leg is not None and leg.seq == work.seq:
            leg.transfer = work_id

    def _still_lost(self, req: Request, trigger: Trigger, worker: ev.WorkerName) -> bool:
        """An earlier trigger of the same loss may have replaced the leg already."""
        leg = {Trigger.PREFILL_LOST: req.prefill, Trigger.RELAY_LOST: req.relay, Trigger.MAIN_LOST: req.main}[
            trigger
        ]
        return leg is not None and leg.worker == worker

    # ------------------------------------------------------------------------ table

    def _loss(self, work: Work, lost_worker: ev.WorkerName | None = None) -> Trigger | None:
        """Which leg is lost when this work fails (or when `lost_worker` dies under it)."""
        if work.cancelled or work.kind is WorkKind.CLOSE:
            return None
        if work.purpose is TransferPurpose.HANDOFF and work.worker != lost_worker:
            return Trigger.RELAY_LOST
        if lost_worker is not None and work.worker != lost_worker:
            return None  # the source died: its own leg says so
        return _LOST[work.leg]

    def _lose(self, req: Request, trigger: Trigger, error: str) -> None:
        allowed = self._check(req, trigger)
        match trigger:
            case Trigger.PREFILL_LOST:
                phase = self._life.on_prefill_lost(req, error)
            case Trigger.RELAY_LOST:
                phase = self._life.on_relay_lost(req, error)
            case _:
                phase = self._life.on_main_lost(req, error)
        self._enter(req, allowed, phase)

    def _work(
        self, request: ev.RequestId, work_id: ev.WorkId, kind: WorkKind | None
    ) -> tuple[Request, Work] | None:
        req = self.requests.get(request)
        work = req.works.get(work_id) if req is not None else None
        if req is None or work is None:
            self.stale_events += 1
            return None
        if kind is not None and work.kind is not kind:
            raise IllegalEventError(
                f"request {request}: work {work_id} is {work.kind}, and cannot end like {kind}"
            )
        return req, work

    def _check(self, req: Request, trigger: Trigger) -> tuple[Phase, ...]:
        """Where the trigger may lead from here. IllegalEventError if it cannot be."""
        allowed = TRANSITIONS[req.phase].get(trigger)
        if allowed is None:
            raise IllegalEventError(f"request {req.id}: {trigger} cannot happen while {req.phase}")
        return allowed

    def _enter(self, req: Request, allowed: tuple[Phase, ...], phase: Phase) -> None:
        assert phase in allowed, f"{req.phase} --> {phase} is not in the table"
        req.phase = phase

    def _settle_if_done(self, req: Request) -> None:
        if req.phase is _SETTLING:
            if req.works or req.aligning:
                return
            req.phase = _SETTLED
        elif req.phase is not _SETTLED:
            return
        del self.requests[req.id]
        held = self._d.ledger.held(req.session)
        p_held = held.get(req.p_worker, 0) if req.p_worker else 0
        md_held = held.get(req.md_worker, 0) if req.md_worker else self._best_main(held)
        self._d.say(
            act.Settled(req.id, req.outcome, req.retries, max(0, p_held - md_held), req.saved_kv_bytes)
        )

    def _best_main(self, held: dict[ev.WorkerName, int]) -> int:
        mains = (
            n for w, n in held.items() if w in self._d.roster and self._d.roster[w].role is Role.MAIN_DECODE
        )
        return max(mains, default=0)
