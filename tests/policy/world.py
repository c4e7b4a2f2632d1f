"""A fake cluster for the policy: it does what is asked in an order that a seed or a test chooses.

It knows the truth that the policy must never lose: which positions each sequence holds, what each
worker caches, which tokens the client got. Every action is checked against it.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.config import PolicyConfig
from harness.policy.core import Policy
from harness.policy.phase import Phase
from harness.policy.roles import Role, TransferStart


@dataclass
class Sequence:
    request: str
    session: str
    held: int
    prefilling: int | None = None


@dataclass
class FakeWorker:
    name: str
    role: Role
    cluster: str
    sequences: dict[int, Sequence] = field(default_factory=dict)
    cache: dict[str, int] = field(default_factory=dict)
    outbox: deque[ev.Event] = field(default_factory=deque)
    """Events on their way to the policy: one worker's arrive in order, different workers' in any."""
    decoding: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """work -> (request, sequence, next answer index)"""


@dataclass
class Client:
    session: str
    prompt: int
    max_tokens: int
    got: int = 0
    ended: str | None = None
    settled: bool = False


class World:
    """Drives one policy. `violations` raise at once, with the seed in the caller's message."""

    def __init__(
        self,
        config: PolicyConfig,
        rng: random.Random,
        *,
        p: int = 2,
        rld: int = 2,
        md: int = 2,
        solo: int = 0,
        policy: type[Policy] = Policy,
    ):
        self.policy = policy(config)
        self.rng = rng
        self.now_ns = 0
        self.workers: dict[str, FakeWorker] = {}
        self.clients: dict[str, Client] = {}
        self.transfers: dict[int, act.Transfer] = {}
        self.deadlines: dict[str, int] = {}
        self.live_work: dict[int, str] = {}
        """work -> worker that owes its ending"""
        self.abandoned: set[str] = set()
        self.counter = 0
        self.joined = 0
        for role, n in (
            (Role.PREFILL, p),
            (Role.RELAY_DECODE, rld),
            (Role.MAIN_DECODE, md),
            (Role.COLOCATED, solo),
        ):
            for _ in range(n):
                self.join(role)
        self.tell(ev.LinkMeasured(1e6, 20_000_000))

    # ------------------------------------------------------------------ what a test may do

    def join(self, role: Role) -> None:
        self.joined += 1
        name = f"{role}-{self.joined}"
        cluster = "B" if role is Role.MAIN_DECODE else "A"
        self.workers[name] = FakeWorker(name, role, cluster)
        self.tell(ev.WorkerJoined(name, role, cluster, slots=3, kv_bytes_per_token=2000.0))

    def arrive(self, session: str, prompt: int, max_tokens: int) -> str:
        self.counter += 1
        name = f"r{self.counter}"
        self.clients[name] = Client(session, prompt, max_tokens)
        self.tell(ev.RequestArrived(name, session, prompt, max_tokens))
        return name

    def deliver(self, worker: str) -> bool:
        """Let one message of `worker` through; a decoding worker with none makes a token first."""
        fake = self.workers[worker]
        if not fake.outbox:
            self._decode_step(fake)
        if not fake.outbox:
            return False
        self.tell(fake.outbox.popleft())
        return True

    def kill(self, worker: str) -> None:
        fake = self.workers.pop(worker)
        late = list(fake.outbox)
        for work in [w for w, name in self.live_work.items() if name == worker]:
            del self.live_work[work]
        for work in [w for w, t in self.transfers.items() if worker in (t.source, t.target)]:
            self.live_work.pop(work, None)
            del self.transfers[work]
        self.tell(ev.WorkerLost(worker, "killed"))
        for event in late[:2]:  # messages that were under way when it died
            self.tell(event)

    def fail(self, work: int) -> None:
        """The worker reports that this work came to nothing. Closing does not fail while a worker lives."""
        worker = self.workers[self.live_work[work]]
        if any(isinstance(e, ev.Closed) and e.work == work for e in worker.outbox):
            return
        request = self._request_of(work)
        worker.decoding.pop(work, None)
        self.transfers.pop(work, None)
        for seq in worker.sequences.values():
            if seq.prefilling == work:
                seq.prefilling = None
        worker.outbox = deque(e for e in worker.outbox if getattr(e, "work", None) != work)
        worker.outbox.append(ev.WorkFailed(request, work, "failed by the test"))

    def leave(self, request: str) -> None:
        client = self.clients[request]
        if client.ended is None:
            client.ended = "gone"
        self.tell(ev.ClientGone(request))

    def expire(self, request: str) -> None:
        self.deadlines.pop(request)
        if self.policy.requests[request].phase is Phase.SETTLING:
            self.abandoned.add(request)
        self.tell(ev.DeadlineReached(request))

    def run_dry(self, limit: int = 100_000) -> None:
        """Deliver everything until nothing moves."""
        for _ in range(limit):
            movers = [w for w, f in self.workers.items() if f.outbox or f.decoding]
            if not movers:
                return
            self.deliver(self.rng.choice(movers))
        raise AssertionError("the world does not come to rest")

    # ------------------------------------------------------------------ truth

    def tell(self, event: ev.Event) -> None:
        self.now_ns += self.rng.randrange(1, 50_000_000)
        if (work := getattr(event, "work", None)) is not None and not (
            isinstance(event, ev.TokensDecoded) and event.finish is None
        ):
            self.live_work.pop(work, None)
            self.transfers.pop(work, None)
        for action in self.policy.handle(self.now_ns, event):
            self._do(action)

    def check_rest(self) -> None:
        """At rest: every request ended once and owns nothing, and the ledger is the truth."""
        for name, client in self.clients.items():
            assert client.ended is not None, f"{name} hangs: {self.policy.requests.get(name)}"
            assert client.settled, f"{name} never settled: {self.policy.requests.get(name)}"
        assert not self.policy.requests
        assert not self.live_work or self.abandoned, self.live_work
        for worker in self.workers.values():
            open_ = [s for s in worker.sequences.values() if s.request not in self.abandoned]
            assert not open_, (worker.name, open_)
            if not self.abandoned:
                assert self.policy.dispatch.roster[worker.name].sequences == 0
                for session, held in worker.cache.items():
                    assert self.policy.dispatch.ledger.held(session).get(worker.name, 0) == held

    def _request_of(self, work: int) -> str:
        return next(r.id for r in self.policy.requests.values() if work in r.works)

    def _do(self, action: act.Action) -> None:
        match action:
            case act.Prefill():
                worker = self._begin(action.work, action.worker)
                held = self._hit(worker, action.request, action.positions)
                worker.sequences[action.work] = Sequence(
                    action.request, self.clients[action.request].session, action.positions, action.work
                )
                worker.outbox.append(
                    ev.PrefillDone(action.request, action.work, held, action.positions - held)
                )
            case act.Open():
                worker = self._begin(action.work, action.worker)
                held = self._hit(worker, action.request, action.positions)
                worker.sequences[action.work] = Sequence(
                    action.request, self.clients[action.request].session, held
                )
                worker.outbox.append(ev.Opened(action.request, action.work, held))
            case act.Transfer():
                target = self._begin(action.work, action.target)
                source = self.workers[action.source].sequences[action.source_seq]
                receiver = target.sequences[action.target_seq]
                assert receiver.held == action.p0, (
                    f"transfer from {action.p0}, but the receiver holds {receiver.held}"
                )
                assert source.held >= action.p1 > action.p0
                pending = any(
                    isinstance(e, ev.PrefillDone) and e.work == action.source_seq
                    for e in self.workers[action.source].outbox
                )
                assert not action.follow or self.policy.config.transfer is TransferStart.PER_CHUNK
                assert not (pending and not action.follow), "KV taken from an unfinished prefill"
                self.transfers[action.work] = action
                receiver.held = action.p1
                target.outbox.append(
                    ev.TransferDone(action.request, action.work, (action.p1 - action.p0) * 2000)
                )
            case act.Demote():
                assert action.work in self.live_work
            case act.Extend():
                worker = self._begin(action.work, action.worker)
                seq = worker.sequences[action.seq]
                assert seq.held >= action.p0, f"extend from {action.p0}, but only {seq.held} are held"
                client = self.clients[action.request]
                assert action.p0 < action.p1 <= client.prompt + client.got
                seq.held = max(seq.held, action.p1)
                worker.outbox.append(ev.ExtendDone(action.request, action.work))
            case act.Decode():
                worker = self._begin(action.work, action.worker)
                client = self.clients[action.request]
                seq = worker.sequences[action.seq]
                assert seq.held >= action.p0, f"decode from {action.p0}, but only {seq.held} are held"
                assert action.first == client.got
                assert action.p0 < client.prompt + client.got
                seq.held = client.prompt + client.got
                worker.decoding[action.work] = (action.request, action.seq, action.first)
            case act.Cancel():
                self._cancel(action)
            case act.Close():
                worker = self._begin(action.work, action.worker)
                seq = worker.sequences.pop(action.seq, None)
                held = seq.held if seq is not None and action.keep else 0
                if seq is not None:
                    if held:
                        worker.cache[seq.session] = held
                    else:
                        worker.cache.pop(seq.session, None)
                worker.outbox.append(ev.Closed(action.request, action.work, held))
            case act.Emit():
                client = self.clients[action.request]
                assert client.ended is None, "tokens after the end"
                assert action.first == client.got, "a token index twice or skipped"
                client.got += action.count
                assert client.got <= client.max_tokens
            case act.Finish() | act.Fail():
                client = self.clients[action.request]
                assert client.ended in (None, "gone"), "ended twice"
                client.ended = client.ended or ("ok" if isinstance(action, act.Finish) else "failed")
                if isinstance(action, act.Finish) and action.reason == "length":
                    assert client.got == client.max_tokens
            case act.SetDeadline():
                self.deadlines[action.request] = action.at_ns
            case act.Settled():
                client = self.clients[action.request]
                assert not client.settled
                client.settled = True
                self.deadlines.pop(action.request, None)
            case act.Retire():
                assert not self.workers[action.worker].sequences
            case act.Decided():
                pass

    def _begin(self, work: int, worker: str) -> FakeWorker:
        assert work not in self.live_work
        self.live_work[work] = worker
        return self.workers[worker]

    def _hit(self, worker: FakeWorker, request: str, positions: int) -> int:
        """The worker's own prefix hit; now and then it has evicted the session meanwhile."""
        session = self.clients[request].session
        if self.rng.random() < 0.1:
            worker.cache.pop(session, None)
            worker.outbox.append(ev.CacheEvicted(worker.name, session, 0))
        return min(worker.cache.get(session, 0), positions)

    def _cancel(self, action: act.Cancel) -> None:
        worker = self.workers[self.live_work[action.work]]
        result_on_its_way = any(
            getattr(e, "work", None) == action.work
            and not (isinstance(e, ev.TokensDecoded) and e.finish is None)
            for e in worker.outbox
        )
        if action.work in self.transfers and self.rng.random() < 0.5:
            # Cut on the wire: the receiver keeps what it had joined before.
            transfer = self.transfers.pop(action.work)
            worker.outbox = deque(e for e in worker.outbox if getattr(e, "work", None) != action.work)
            if transfer.target_seq in worker.sequences:
                worker.sequences[transfer.target_seq].held = transfer.p0
            worker.outbox.append(ev.Cancelled(action.request, action.work, kv_bytes=1000))
        elif not result_on_its_way:
            worker.decoding.pop(action.work, None)
            worker.outbox.append(ev.Cancelled(action.request, action.work))

    def _decode_step(self, worker: FakeWorker) -> None:
        if not worker.decoding:
            return
        work = self.rng.choice(list(worker.decoding))
        request, seq, index = worker.decoding[work]
        client = self.clients[request]
        count = min(self.rng.randrange(1, 4), client.max_tokens - index)
        finish = "length" if index + count == client.max_tokens else None
        if finish is None and self.rng.random() < 0.02:
            finish = "stop"
        if finish:
            del worker.decoding[work]
        else:
            worker.decoding[work] = (request, seq, index + count)
        sequence = worker.sequences.get(seq)
        if sequence is not None:
            sequence.held += count
        worker.outbox.append(ev.TokensDecoded(request, work, index, count, finish))
