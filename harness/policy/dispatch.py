"""Starting, cancelling and ending work: every action that owns something is issued here.

Keeps three books level: the request's works and sequences, the roster's count of open sequences,
and the estimate of what is queued for the WAN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from harness.policy import actions as act
from harness.policy.config import PolicyConfig
from harness.policy.events import WorkId
from harness.policy.ledger import CacheLedger
from harness.policy.request import Leg, LegName, Request, Work, WorkKind
from harness.policy.roles import Role, TransferPurpose, TransferStart
from harness.policy.roster import Roster, Worker
from harness.policy.wan import WanEstimate

_PREFILL, _MAIN = LegName.PREFILL, LegName.MAIN
_TRANSFER = WorkKind.TRANSFER


class Dispatcher:
    """Issues actions; `now_ns` is set by the core before every event."""

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self.roster = Roster()
        self.ledger = CacheLedger()
        self.wan = WanEstimate()
        self.now_ns = 0
        self._out: list[act.Action] = []
        self.say: Final[Callable[[act.Action], None]] = self._out.append
        """Answer with one more action."""
        self._new_work: Final[Callable[[], WorkId]] = itertools.count(1).__next__

    def take(self) -> tuple[act.Action, ...]:
        """The actions since the last call."""
        out = tuple(self._out)
        self._out.clear()
        return out

    def open_leg(self, req: Request, name: LegName, worker: Worker) -> Leg:
        """Open a sequence for the context on `worker` and make it the request's leg of that name."""
        work = self._new_work()
        leg = Leg(name, worker.name, work)
        req.sequences[work] = worker.name
        worker.sequences += 1
        if name is _PREFILL:
            req.prefill = leg
            req.p_worker = worker.name
            leg.compute = work
            req.works[work] = Work(WorkKind.PREFILL, name, worker.name, work)
            self.say(act.Prefill(req.id, work, worker.name, req.goal))
            return leg
        if name is _MAIN:
            req.main = leg
            req.md_worker = worker.name
        else:
            req.relay = leg
        req.works[work] = Work(WorkKind.OPEN, name, worker.name, work)
        self.say(act.Open(req.id, work, worker.name, req.goal))
        return leg

    def transfer(self, req: Request, leg: Leg, source: Leg, purpose: TransferPurpose, p1: int) -> None:
        """Move KV [leg.held, p1) from `source` to `leg`."""
        work = self._new_work()
        sender = self.roster[source.worker]
        kv_bytes = (p1 - leg.held) * sender.kv_bytes_per_token
        req.works[work] = Work(
            WorkKind.TRANSFER,
            leg.name,
            leg.worker,
            leg.seq,
            purpose=purpose,
            source=source.worker,
            kv_bytes=kv_bytes,
        )
        leg.transfer = work
        if sender.cluster != self.roster[leg.worker].cluster:
            self.wan.started(self.now_ns, work, kv_bytes)
        follow = source.name is _PREFILL and not source.landed
        self.say(
            act.Transfer(
                req.id, work, purpose, source.worker, source.seq, leg.worker, leg.seq, leg.held, p1, follow
            )
        )

    def extend(self, req: Request, leg: Leg, p1: int) -> None:
        """Compute context [leg.held, p1) on `leg`."""
        work = self._new_work()
        req.works[work] = Work(WorkKind.EXTEND, leg.name, leg.worker, leg.seq, span=p1 - leg.held)
        leg.compute = work
        self.say(act.Extend(req.id, work, leg.worker, leg.seq, leg.held, p1))

    def decode(self, req: Request, leg: Leg) -> None:
        """Compute the rest of the context on `leg` and let it own the stream from here on."""
        work = self._new_work()
        req.works[work] = Work(WorkKind.DECODE, leg.name, leg.worker, leg.seq)
        leg.compute = work
        self.say(act.Decode(req.id, work, leg.worker, leg.seq, leg.held, req.emitted))

    def cancel(self, req: Request, work: WorkId | None, *, saves: bool = False) -> None:
        """End work early. With `saves`, the bytes a transfer did not send are counted as saved."""
        if work is None or (started := req.works.get(work)) is None or started.cancelled:
            return
        started.cancelled = True
        started.saves = saves
        self.say(act.Cancel(req.id, work))

    def supersede(self, req: Request, work: WorkId | None) -> None:
        """Let work run to its end, but take no notice of the result."""
        if work is not None and work in req.works:
            req.works[work].cancelled = True

    def drop(self, req: Request, leg: Leg | None, *, saves: bool = False) -> None:
        """End a leg: cancel its work and close its sequence, keeping the cache where the mode keeps one."""
        if leg is None:
            return
        name = leg.name
        if name is _PREFILL:
            req.prefill = None
        else:
            if name is _MAIN:
                req.main = None
            else:
                req.relay = None
            if not leg.opened:
                self.cancel(req, leg.seq)
        if leg.transfer is not None:
            self.cancel(req, leg.transfer, saves=saves)
        if leg.compute is not None:
            self.cancel(req, leg.compute)
        if leg.seq not in req.sequences:
            return  # its worker is gone
        work = self._new_work()
        worker = self.roster[leg.worker]
        keep = worker.role is not Role.MAIN_DECODE or self.config.decode_radix_cache
        req.works[work] = Work(WorkKind.CLOSE, leg.name, leg.worker, leg.seq)
        self.say(act.Close(req.id, work, leg.worker, leg.seq, keep))

    def feed(self, req: Request) -> None:
        """Start the transfers that can start: a leg is open, lacks KV, and somebody has it."""
        relay, main = req.relay, req.main
        if relay is not None and relay.opened and not relay.landed and relay.transfer is None:
            self._feed(req, relay, req.prefill, TransferPurpose.RELAY)
        if main is not None and main.opened and not main.landed and main.transfer is None:
            self._feed(req, main, relay if req.prefill is None else req.prefill, TransferPurpose.MAIN)

    def _feed(self, req: Request, leg: Leg, source: Leg | None, purpose: TransferPurpose) -> None:
        """A relay decoder gives what it holds; P may give while it computes, if the mode says so."""
        if source is not None and (
            source.landed
            or (source.name is _PREFILL and self.config.transfer is not TransferStart.AFTER_PREFILL)
        ):
            self.transfer(req, leg, source, purpose, req.goal)

    def work_ended(self, req: Request, work_id: WorkId, kv_bytes: int = 0) -> Work:
        """Take work off the books and return what it was."""
        work = req.works.pop(work_id)
        if work.kind is _TRANSFER:
            self.wan.ended(self.now_ns, work_id, kv_bytes)
            if work.saves:
                req.saved_kv_bytes += max(0, int(work.kv_bytes) - kv_bytes)
        leg = req.leg(work.leg)
        if leg is not None and leg.seq == work.seq:
            if leg.transfer == work_id:
                leg.transfer = None
            if leg.compute == work_id:
                leg.compute = None
        return work

    def sequence_ended(self, req: Request, seq: WorkId) -> None:
        """A sequence is closed: free its place, and let a draining worker go when it was the last."""
        name = req.sequences.pop(seq, None)
        if name is None or name not in self.roster:
            return
        worker = self.roster[name]
        worker.sequences -= 1
        if worker.draining and worker.sequences == 0:
            self.say(act.Retire(name))
