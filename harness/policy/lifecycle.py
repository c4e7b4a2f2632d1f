"""What each trigger of the table does: one method a trigger, returning the next phase."""

from __future__ import annotations

from harness.policy import actions as act
from harness.policy.chooser import HandoffChooser
from harness.policy.config import PolicyConfig
from harness.policy.dispatch import Dispatcher
from harness.policy.events import WorkerName
from harness.policy.phase import Phase
from harness.policy.request import Leg, LegName, Request
from harness.policy.roles import HandoffMode, HandoffPayload, Pipeline, Role, TransferPurpose
from harness.policy.roster import Worker

# A member of an enum costs ten times a global in Python 3.11; these are read for every request.
_LOADING, _RELAYING, _SWITCHING = Phase.LOADING, Phase.RELAYING, Phase.SWITCHING
_STREAMING, _SETTLING = Phase.STREAMING, Phase.SETTLING
_PREFILL, _RELAY_DECODE, _MAIN_DECODE = Role.PREFILL, Role.RELAY_DECODE, Role.MAIN_DECODE
_RELAYED, _DIRECT = Pipeline.RELAYED, Pipeline.DIRECT


class Lifecycle:
    """Moves one request at a time from phase to phase; everything it starts goes through the dispatcher."""

    def __init__(self, config: PolicyConfig, dispatch: Dispatcher) -> None:
        self._config = config
        self._d = dispatch
        self._chooser = HandoffChooser(config.handoff)
        self._slack = config.routing.affinity_slack
        self._relay_bound_ns = config.routing.relay_bound_ms * 1e6
        self._alone = (Pipeline.COLOCATED, Pipeline.APPEND)

    # ------------------------------------------------------------------ start

    def start(self, req: Request, avoid: WorkerName | None = None) -> Phase:
        """Choose the pipeline for the context as it stands, and open what it needs."""
        d, held = self._d, self._d.ledger.held(req.session)
        req.goal = req.context - 1
        if self._config.colocated:
            worker = self._place(Role.COLOCATED, held, avoid)
            if worker is None:
                return self._fail(req, "no colocated worker is up")
            return self._start_alone(req, worker, Pipeline.COLOCATED)
        main = self._place(_MAIN_DECODE, held, avoid)
        if main is not None and self._config.append:
            hit = held.get(main.name, 0)
            if hit >= self._config.routing.append_hit_share * req.goal:
                return self._start_alone(req, main, Pipeline.APPEND)
        prefill = self._place(_PREFILL, held, avoid)
        if prefill is None:
            return self._fail(req, "no prefill worker is up")
        estimate_ns = self._estimate(req, prefill, main, held.get(main.name, 0)) if main else 0
        relay = self._relay_for(req, held, avoid) if main is None or self._over_bound(estimate_ns) else None
        if main is None and relay is None:
            return self._fail(req, "no main_decode worker is up")
        if relay is not None and (main is None or self._config.local):
            req.pipeline, main = Pipeline.LOCAL, None
        else:
            req.pipeline = _RELAYED if relay else _DIRECT
        d.say(act.Decided(req.id, req.pipeline, estimate_ns))
        d.open_leg(req, LegName.PREFILL, prefill)
        if relay:
            d.open_leg(req, LegName.RELAY, relay)
        if main:
            d.open_leg(req, LegName.MAIN, main)
        return _LOADING

    def _start_alone(self, req: Request, worker: Worker, pipeline: Pipeline) -> Phase:
        req.pipeline = pipeline
        self._d.say(act.Decided(req.id, pipeline, 0))
        self._d.open_leg(req, LegName.MAIN, worker)
        return _STREAMING

    def _place(self, role: Role, held: dict[WorkerName, int], avoid: WorkerName | None) -> Worker | None:
        return self._d.roster.place(role, held, slack=self._slack, avoid=avoid)

    def _relay_for(
        self, req: Request, held: dict[WorkerName, int], avoid: WorkerName | None
    ) -> Worker | None:
        """A relay decoder with a free slot, if the mode relays and more than one token is left."""
        routing = self._config.routing
        if not (self._config.relay or self._config.local) or req.max_tokens - req.emitted < 2:
            return None
        workers = self._d.roster
        worker = workers.place(_RELAY_DECODE, held, slack=self._slack, avoid=avoid)
        if worker is None or worker.sequences < (routing.relay_slots or worker.slots):
            return worker
        slots = routing.relay_slots or worker.slots
        return workers.place(_RELAY_DECODE, held, slack=self._slack, avoid=avoid, slots=slots)

    def _estimate(self, req: Request, prefill: Worker, main: Worker, held: int) -> int:
        if prefill.cluster == main.cluster:
            return 0
        missing = max(0, req.goal - held)
        return self._d.wan.transfer_ns(self._d.now_ns, missing * prefill.kv_bytes_per_token)

    def _over_bound(self, estimate_ns: int) -> bool:
        return estimate_ns > self._relay_bound_ns

    # ------------------------------------------------------- KV arrives at legs

    def on_prefilled(self, req: Request) -> Phase:
        assert req.prefill is not None
        req.prefill.landed = True
        req.prefill.held = req.goal
        self._d.feed(req)
        self._release_prefill(req)
        return req.phase

    def on_relay_opened(self, req: Request) -> Phase:
        assert req.relay is not None
        if req.relay.held >= req.goal:
            return self.on_relay_landed(req)
        self._d.feed(req)
        return req.phase

    def on_main_opened(self, req: Request) -> Phase:
        assert req.main is not None
        if req.pipeline in self._alone:
            self._d.decode(req, req.main)
            return _STREAMING
        if req.main.held >= req.goal:
            return self.on_main_landed(req)
        self._reconsider(req, req.main)
        self._d.feed(req)
        return req.phase

    def _reconsider(self, req: Request, main: Leg) -> None:
        """MD holds less than was believed (eviction, a gap): relay after all if the delta is now long."""
        if (
            req.phase is not _LOADING
            or req.relay is not None
            or not self._config.relay
            or req.prefill is None
        ):
            return
        roster = self._d.roster
        estimate_ns = self._estimate(req, roster[req.prefill.worker], roster[main.worker], main.held)
        if not self._over_bound(estimate_ns):
            return
        relay = self._relay_for(req, self._d.ledger.held(req.session), avoid=None)
        if relay is not None:
            req.pipeline = _RELAYED
            self._d.say(act.Decided(req.id, req.pipeline, estimate_ns))
            self._d.open_leg(req, LegName.RELAY, relay)

    def on_relay_landed(self, req: Request) -> Phase:
        assert req.relay is not None
        req.relay.landed = True
        req.relay.held = req.goal
        self._d.decode(req, req.relay)
        self._release_prefill(req)
        return Phase.LOCAL if req.pipeline is Pipeline.LOCAL else _RELAYING

    def on_main_landed(self, req: Request) -> Phase:
        assert req.main is not None
        req.main.landed = True
        req.main.held = req.goal
        if req.phase is _RELAYING:
            self._release_prefill(req)
            return self._hand_over(req)
        if req.phase is _SETTLING:
            self._release_prefill(req)
            return self._align(req)
        if req.relay is not None:  # MD was faster: nothing to relay
            self._d.drop(req, req.relay)
            req.pipeline = _DIRECT
            self._d.say(act.Decided(req.id, req.pipeline, 0))
        self._d.drop(req, req.prefill)
        self._d.decode(req, req.main)
        return _STREAMING

    def _release_prefill(self, req: Request) -> None:
        """P's sequence is needed until every leg that waits for its KV has it."""
        relay, main = req.relay, req.main
        if (relay is None or relay.landed) and (main is None or main.landed):
            self._d.drop(req, req.prefill)

    # ----------------------------------------------------------------- handoff

    def _hand_over(self, req: Request) -> Phase:
        d, config = self._d, self._config.handoff
        assert req.relay is not None
        assert req.main is not None
        relay = d.roster[req.relay.worker]
        share = relay.sequences / max(1, self._config.routing.relay_slots or relay.slots)
        if self._chooser.choose(req.context - req.main.held, share) is HandoffMode.CATCH_UP:
            self._catch_up(req, req.main)
            return Phase.CATCHING_UP
        if config.payload is HandoffPayload.KV_TRANSFER and req.context - 1 > req.main.held:
            d.cancel(req, req.relay.compute)
            d.transfer(req, req.main, req.relay, TransferPurpose.HANDOFF, req.context - 1)
            return _SWITCHING
        return self._switch(req)

    def _catch_up(self, req: Request, main: Leg) -> None:
        batch = min(req.context - 1 - main.held, self._config.handoff.catch_up_batch_tokens)
        self._d.extend(req, main, main.held + batch)

    def _switch(self, req: Request) -> Phase:
        """RLD is freed, MD recomputes what is left and goes on."""
        assert req.main is not None
        self._d.drop(req, req.relay)
        self._d.decode(req, req.main)
        return _SWITCHING

    def on_main_extended(self, req: Request, span: int) -> Phase:
        assert req.main is not None
        req.main.held += span
        if req.phase is _SETTLING:
            return self._align(req)
        req.main.batches += 1
        config = self._config.handoff
        waiting = req.context - req.main.held
        if waiting <= max(1, config.switch_tokens) or req.main.batches >= config.catch_up_batches:
            return self._switch(req)
        self._catch_up(req, req.main)
        return Phase.CATCHING_UP

    def on_handoff_landed(self, req: Request) -> Phase:
        assert req.main is not None
        req.main.held = req.context - 1
        return self._switch(req)

    # ------------------------------------------------------------------ tokens

    def on_relay_tokens(self, req: Request, count: int, finish: str | None) -> Phase:
        self._emit(req, count, _RELAY_DECODE)
        if finish is None:
            return req.phase
        self._d.say(act.Finish(req.id, finish))
        self._d.drop(req, req.relay)
        if req.main is None:
            return self._settle(req)
        if req.phase is _RELAYING and self._config.odd_traffic_filter and not self._config.back_fill:
            self._d.drop(req, req.main, saves=True)
            return self._settle(req)
        if not self._config.decode_radix_cache:
            return self._settle(req)
        if req.phase is _RELAYING and self._config.back_fill and req.main.transfer is not None:
            self._d.say(act.Demote(req.id, req.main.transfer))
        req.aligning = True
        if not req.main.landed or req.main.compute is not None:
            # MD's copy, or a batch of ids, is still on its way; SETTLING goes on when it has landed.
            return self._settle(req)
        return self._align(req)

    def on_main_tokens(self, req: Request, count: int, finish: str | None) -> Phase:
        self._emit(req, count, Role.COLOCATED if self._config.colocated else _MAIN_DECODE)
        if finish is None:
            return _STREAMING
        self._d.say(act.Finish(req.id, finish))
        return self._settle(req)

    def _emit(self, req: Request, count: int, role: Role) -> None:
        if count:
            self._d.say(act.Emit(req.id, req.emitted, count, role))
            req.emitted += count

    # -------------------------------------------------------------------- loss

    def on_prefill_lost(self, req: Request, error: str) -> Phase:
        lost = req.prefill.worker if req.prefill else None
        interrupted = [leg for leg in (req.relay, req.main) if leg is not None and leg.transfer is not None]
        self._d.drop(req, req.prefill)
        if req.phase is _SETTLING:
            return self._give_up_aligning(req)
        if req.phase is Phase.LOCAL:
            return Phase.LOCAL
        if not self._may_retry(req):
            return self._end_on_relay(req, error)
        if req.relay is None or not req.relay.landed:
            worker = self._place(_PREFILL, self._d.ledger.held(req.session), lost)
            if worker is None:
                return self._fail(req, f"no prefill worker is up after: {error}")
            self._d.open_leg(req, LegName.PREFILL, worker)
        for leg in interrupted:
            self._reopen(req, leg)
        self._d.feed(req)
        return req.phase

    def on_relay_lost(self, req: Request, error: str) -> Phase:
        lost = req.relay.worker if req.relay else None
        fed_main = req.prefill is None and req.main is not None and not req.main.landed
        self._d.drop(req, req.relay)
        match req.phase:
            case Phase.CATCHING_UP:
                assert req.main is not None
                if req.main.compute is not None:  # the batch under way: decoding queues up behind it
                    req.main.held += req.works[req.main.compute].span
                    self._d.supersede(req, req.main.compute)
                return self._switch(req)
            case Phase.SWITCHING:
                assert req.main is not None
                self._d.cancel(req, req.main.transfer)
                return self._switch(req)
            case _ if req.main is None or fed_main:
                return self._restart(req, error, lost)
            case _:
                return _LOADING

    def on_main_lost(self, req: Request, error: str) -> Phase:
        lost = req.main.worker if req.main else None
        self._d.drop(req, req.main)
        match req.phase:
            case Phase.SETTLING:
                return self._give_up_aligning(req)
            case Phase.SWITCHING | Phase.STREAMING:
                return self._restart(req, error, lost)
            case _:
                if not self._may_retry(req):
                    return self._end_on_relay(req, error)
                worker = self._place(_MAIN_DECODE, self._d.ledger.held(req.session), lost)
                if worker is None:
                    return self._end_on_relay(req, f"no main_decode worker is up after: {error}")
                self._d.open_leg(req, LegName.MAIN, worker)
                return _LOADING if req.phase is _LOADING else _RELAYING

    def _reopen(self, req: Request, leg: Leg) -> None:
        """What a half-done transfer left is for the receiver to say: close, and ask again."""
        worker = self._d.roster[leg.worker]
        self._d.drop(req, leg)
        self._d.open_leg(req, leg.name, worker)

    def _restart(self, req: Request, error: str, lost: WorkerName | None) -> Phase:
        """Begin anew with the tokens already emitted as part of the context."""
        if not self._may_retry(req):
            return self._fail(req, f"given up after {req.retries - 1} retries: {error}")
        self._drop_all(req)
        return self.start(req, lost)

    def _may_retry(self, req: Request) -> bool:
        req.retries += 1
        return req.retries <= self._config.max_retries

    def _end_on_relay(self, req: Request, error: str) -> Phase:
        """No way to MD is left: RLD ends the answer if it can, the request fails if not."""
        relay = req.relay
        if relay is None or not (relay.landed or req.prefill is not None):
            return self._fail(req, error)
        self._d.drop(req, req.main)
        self._release_prefill(req)
        req.pipeline = Pipeline.LOCAL
        self._d.say(act.Decided(req.id, req.pipeline, 0))
        return Phase.LOCAL if relay.landed else _LOADING

    # --------------------------------------------------------------------- end

    def on_client_gone(self, req: Request) -> Phase:
        req.outcome = "cancelled"
        return self._settle(req)

    def on_deadline(self, req: Request) -> Phase:
        if req.phase is not _SETTLING:
            return self._fail(req, f"deadline of {self._config.deadline_s:g} s passed while {req.phase}")
        if req.aligning:  # only the back-fill is late: its workers are well and can close in the usual way
            self._d.say(act.SetDeadline(req.id, self._d.now_ns + int(self._config.settle_s * 1e9)))
            return self._give_up_aligning(req)
        for work in list(req.works):
            self._d.work_ended(req, work)
        for seq in list(req.sequences):
            self._d.sequence_ended(req, seq)
        req.aligning = False
        return Phase.SETTLED

    def _fail(self, req: Request, error: str) -> Phase:
        req.outcome = "failed"
        self._d.say(act.Fail(req.id, error))
        return self._settle(req)

    def _align(self, req: Request) -> Phase:
        """Bring MD's cache level with the answer the client has; then let everything go."""
        assert req.main is not None
        if req.main.held >= req.context:
            return self._give_up_aligning(req)
        batch = min(req.context - req.main.held, self._config.handoff.catch_up_batch_tokens)
        self._d.extend(req, req.main, req.main.held + batch)
        return self._settle(req)

    def _give_up_aligning(self, req: Request) -> Phase:
        req.aligning = False
        return self._settle(req)

    def _settle(self, req: Request) -> Phase:
        """The client has its end. What is still wanted goes on; everything else is dropped."""
        if not req.aligning:
            self._drop_all(req)
        if req.phase is not _SETTLING:
            wait_s = self._config.deadline_s if req.aligning else self._config.settle_s
            self._d.say(act.SetDeadline(req.id, self._d.now_ns + int(wait_s * 1e9)))
        return _SETTLING

    def _drop_all(self, req: Request) -> None:
        self._d.drop(req, req.relay)
        self._d.drop(req, req.main)
        self._d.drop(req, req.prefill)
