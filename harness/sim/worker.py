"""One simulated worker: a continuous-batching engine whose steps take what the cost model says.

A step computes chunks of waiting prompts and one token of every running sequence. While no chunk
waits, steps are not simulated one by one: the decode clock knows when each sequence ends. Room is
accounted in KV positions: open sequences, and the prefix cache in what they leave. A sequence that
finds no room waits; when decoding runs out of room, the newest sequence is preempted and recomputed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from harness.costs.deployment import Deployment, attention_pairs
from harness.policy import events as ev
from harness.policy.events import RequestId, WorkerName, WorkId
from harness.policy.roles import Role
from harness.sim.decode_clock import DecodeClock, Instants
from harness.sim.event_queue import EventQueue
from harness.sim.fabric import FabricPort
from harness.sim.sequence import Compute, DecodeJob, Opening, Sequence
from harness.sim.session import Session, common_tokens
from harness.sim.session_cache import SessionCache

_RESERVE_STEPS: Final = 64
"""Decoding makes room for so many steps at a time."""
_ALONE_TOKENS: Final = 512
"""Without filling, a chunk above this size shares its step with no other prompt."""

Tell = Callable[["SimWorker", ev.Event, Instants | None], None]


class SimWorker:
    """`tell(worker, event, token_instants)` is called at the instant the worker knows."""

    def __init__(
        self,
        name: WorkerName,
        role: Role,
        cluster: str,
        costs: Deployment,
        queue: EventQueue,
        tell: Tell,
        *,
        max_sequences: int,
        chunk_tokens: int,
        capacity_tokens: int,
        time_scale: float,
        fill_tail: bool,
        token_instants: bool,
    ) -> None:
        self.name: Final = name
        self.role: Final = role
        self.cluster: Final = cluster
        self.costs: Final = costs
        self.max_sequences: Final = max_sequences
        self.capacity_tokens: Final = capacity_tokens
        self.port: Final = FabricPort(queue, costs)
        self.cache: Final = SessionCache()
        self.sequences: dict[WorkId, Sequence] = {}
        self.open_tokens = 0
        self.alive = True
        self.awake_ns = 0
        """When it hears and computes again, if it stands still."""
        self.away_ns = 0
        """One way of a message between the worker and the policy; the driver keeps it."""
        self.inbox_ns = 0
        """When the last of the long messages on their way will be here: none overtakes it."""
        self.computed_tokens = 0
        self.cached_tokens = 0
        self.external_tokens = 0
        self.decoded_tokens = 0
        self.evicted_tokens = 0
        self.preemptions = 0
        self.steps = 0
        self.busy_ns = 0
        self._queue = queue
        self._tell = tell
        self._chunk_tokens = chunk_tokens
        self._time_scale = time_scale
        self._fill_tail = fill_tail
        self._token_instants = token_instants
        self._clock = DecodeClock(log=token_instants)
        self._open_count = 0
        self._outbox: list[tuple[ev.Event, Instants | None]] = []
        self._openings: deque[Opening] = deque()
        self._behind: list[Opening] = []
        """Openings that wait for KV of an earlier turn of their session, which is on its way."""
        self._by_session: dict[str, list[Sequence]] = {}
        self._computes: deque[Compute] = deque()
        self._jobs: dict[WorkId, DecodeJob] = {}
        self._ends: list[tuple[int, WorkId]] = []
        self._preempted: deque[DecodeJob] = deque()
        self._context_tokens = 0
        self._step: list[tuple[Compute, int]] | None = None
        self._busy_since_ns: int | None = None
        self._posted: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._between = False
        """Between two steps, taking what was posted: the next step is planned in a moment."""
        self._epoch = 0
        self._stretch = 0
        """Decoding steps until the call that is scheduled."""

    # ------------------------------------------------------------------ what the driver asks

    def between_steps(self, call: Callable[..., object], *arguments: object) -> None:
        """Make a call when the step under way has ended, before the next one begins; now when idle."""
        if self._between or (self._step is None and not self._jobs):
            call(*arguments)
            return
        self._posted.append((call, arguments))
        if self._step is None:
            self._cut_stretch()

    def open(
        self,
        work: WorkId,
        request: RequestId,
        session: Session,
        turn: int,
        goal: int,
        prefill: bool,
    ) -> None:
        """Open a sequence for `goal` positions, and compute them with `prefill`."""
        sequence = Sequence(work, request, session, turn, goal)
        opening = Opening(work, sequence, prefill)
        self.sequences[work] = sequence
        self._openings.append(opening)
        self._admit()
        self._flush()

    def extend(self, work: WorkId, seq: WorkId, end: int) -> None:
        """Compute ids up to position `end`."""
        self._enqueue(Compute(work, self.sequences[seq], end))

    def decode(self, work: WorkId, seq: WorkId, end: int, first: int, total: int) -> None:
        """Compute ids up to `end`, then sample `total` tokens from answer index `first` on."""
        sequence = self.sequences[seq]
        if sequence.awaits_kv:
            self._landed(sequence)
        self._enqueue(Compute(work, sequence, end, decode=DecodeJob(work, sequence, first, total)))
        self._flush()

    def imported(self, seq: WorkId, held: int) -> None:
        """KV up to `held` has been joined to the sequence."""
        sequence = self.sequences.get(seq)
        if sequence is None:
            return
        if held > sequence.held:
            self.external_tokens += held - sequence.held
            sequence.held = held
            self._charge(sequence, held)
        if sequence.awaits_kv and sequence.held >= sequence.goal:
            self._landed(sequence)
            self._flush()

    def cancel(self, work: WorkId) -> bool:
        """End work; False when it has ended already (its result is on its way)."""
        for opening in self._openings:
            if opening.work == work:
                self._openings.remove(opening)
                self._admit()  # it may have been what the others waited behind
                self._flush()
                return True
        for opening in self._behind:
            if opening.work == work:
                self._behind.remove(opening)
                return True
        for compute in self._computes:
            if compute.work == work:
                self._computes.remove(compute)
                return True
        for job in self._preempted:
            if job.work == work:
                self._preempted.remove(job)
                return True
        running = self._jobs.get(work)
        if running is not None:
            self._settle_clock()
            self._stop(running)
            self._after_stop()
            return True
        return False

    def close(self, work: WorkId, seq: WorkId, keep: bool) -> None:
        """End a sequence, and tell how many positions stay cached for its session."""
        sequence = self.sequences.pop(seq)
        if not sequence.open:
            held = self.cache.held(sequence.session) if keep else 0
            self._outbox.append((ev.Closed(sequence.request, work, held), None))
            self._flush()
            return
        self.open_tokens -= sequence.charged
        self._open_count -= 1
        mates = self._by_session[sequence.session.session_id]
        mates.remove(sequence)
        if not mates:
            del self._by_session[sequence.session.session_id]
        held = 0
        if not keep:
            self.cache.forget(sequence.session)
        elif sequence.held > 0:
            self.cache.keep(sequence.session, sequence.turn, sequence.held)
            held = sequence.held
        self.cache.unpin(sequence.session)
        self._outbox.append((ev.Closed(sequence.request, work, held), None))
        if sequence.awaits_kv:
            self._landed(sequence)
        if self._free() < 0:
            self._make_room(0)
        if self._openings:
            self._admit()
        if self._preempted:
            self._kick()
        self._flush()

    def progress(self, work: WorkId, now_ns: int) -> tuple[ev.TokensDecoded, Instants | None] | None:
        """Tokens made by `now_ns` and not told yet, but for the last of the answer (that comes by itself)."""
        job = self._jobs.get(work)
        if job is None:
            return None
        steps = self._clock.steps
        if self._step is None:
            steps += self._clock.done_by(now_ns)
        made = min(steps - job.base, job.total - 1)
        if made <= job.reported:
            return None
        return self._tokens(job, made, None)

    def pause(self, until_ns: int) -> None:
        """Stand still. The step under way ends so much later; the driver keeps messages back."""
        now_ns = self._queue.now_ns
        pause_ns, self.awake_ns = until_ns - max(now_ns, self.awake_ns), max(until_ns, self.awake_ns)
        if pause_ns <= 0 or (self._step is None and not self._jobs):
            return
        self._settle_clock()
        self._clock.stand_still(pause_ns)
        if self._step is None:
            self._cut_stretch()
        else:
            self._schedule(self._clock.end_ns(1))

    def slow_down(self, factor: float) -> None:
        """Steps that begin from now on take `factor` times as long."""
        self._time_scale *= factor
        if self._step is None and self._jobs:
            self._cut_stretch()

    def die(self) -> None:
        """Everything is gone, and nothing will be reported."""
        self.alive = False
        self._posted.clear()
        self._epoch += 1

    @property
    def running(self) -> int:
        return len(self._jobs) + len({id(c.sequence) for c in self._computes})

    @property
    def waiting(self) -> int:
        return len(self._openings) + len(self._behind) + len(self._preempted)

    @property
    def held_tokens(self) -> int:
        return self.open_tokens + self.cache.tokens

    # ------------------------------------------------------------------ room

    def _free(self) -> int:
        return self.capacity_tokens - self.open_tokens - self.cache.tokens

    def _charge(self, sequence: Sequence, held: int) -> None:
        own = held - sequence.hit
        if own > sequence.charged:
            self.open_tokens += own - sequence.charged
            sequence.charged = own

    def _make_room(self, wanted: int) -> bool:
        """Evict until `wanted` positions are free; False when that cannot be."""
        missing = wanted - self._free()
        if missing <= 0:
            return True
        before = self.cache.tokens
        for session, held in self.cache.evict(missing):
            self._outbox.append((ev.CacheEvicted(self.name, session, held), None))
        self.evicted_tokens += before - self.cache.tokens
        return self._free() >= wanted

    def _admit(self) -> None:
        """Open what waits, in order, while there is room."""
        while self._openings and self.alive:
            opening = self._openings[0]
            sequence = opening.sequence
            session, goal = sequence.session, sequence.goal
            mates = self._by_session.get(session.session_id)
            if mates and self._is_on_its_way(sequence, mates):
                self._behind.append(self._openings.popleft())
                continue
            if self._open_count >= self.max_sequences:
                return
            hit = self.cache.pin(session, sequence.turn, goal)
            if not self._make_room(goal - hit):
                self.cache.unpin(session)
                return
            self._openings.popleft()
            sequence.hit = hit
            if mates is None:
                self._by_session[session.session_id] = [sequence]
            else:
                for mate in mates:  # what an open sequence holds is copied, not shared
                    hit = max(hit, min(mate.held, common_tokens(session, sequence.turn, mate.turn), goal))
                mates.append(sequence)
            sequence.held = sequence.found = hit
            sequence.open = True
            self._open_count += 1
            sequence.charged = goal - sequence.hit
            self.open_tokens += sequence.charged
            self.cached_tokens += hit
            if not opening.prefill:
                sequence.awaits_kv = hit < goal
                self._outbox.append((ev.Opened(sequence.request, opening.work, hit), None))
            elif hit >= goal:
                self._outbox.append((ev.PrefillDone(sequence.request, opening.work, hit, 0), None))
            else:
                self._computes.append(Compute(opening.work, sequence, goal, prefill=True))
                self._kick()

    @staticmethod
    def _is_on_its_way(sequence: Sequence, mates: list[Sequence]) -> bool:
        """KV of an earlier turn that the sequence's prompt continues is just being received: it is opened
        when that has landed, so that it counts as a hit and does not cross the WAN twice."""
        return any(
            mate.awaits_kv and common_tokens(sequence.session, sequence.turn, mate.turn) >= mate.goal
            for mate in mates
        )

    def _landed(self, sequence: Sequence) -> None:
        """KV has landed, or will not: what waited behind it is opened, or waits behind another."""
        sequence.awaits_kv = False
        if self._behind:
            self._openings.extendleft(reversed(self._behind))
            self._behind.clear()
            self._admit()

    # ------------------------------------------------------------------ steps

    def _enqueue(self, compute: Compute) -> None:
        self._charge(compute.sequence, compute.end)
        self._computes.append(compute)
        self._kick()

    def _kick(self) -> None:
        """Something waits: start now when idle, at the next step's end otherwise."""
        if self._step is not None or self._between:
            return
        if self._jobs:
            self._cut_stretch()
        else:
            self._plan(self._queue.now_ns)

    def _cut_stretch(self) -> None:
        """Come back at the end of the decoding step under way."""
        self._settle_clock()
        self._stretch = 0 if self._next_end() <= self._clock.steps else 1
        self._schedule(self._clock.end_ns(self._stretch))

    def _after_stop(self) -> None:
        """A job has left between steps: the step under way goes on, the next ones are shorter."""
        if self._step is not None or self._between:
            return
        if self._computes and self._jobs:
            self._stretch = 1
            self._schedule(self._clock.end_ns(1))
        else:
            self._plan(self._clock.end_ns(0) if self._jobs else self._queue.now_ns)

    def _next_end(self) -> int:
        """Step at which the next running sequence has its last token."""
        ends = self._ends
        while True:
            end, work = ends[0]
            job = self._jobs.get(work)
            if job is not None and job.base + job.total == end:
                return end
            heapq.heappop(ends)

    def _flush(self) -> None:
        """Tell what happened, once the state is whole again."""
        while self._outbox:
            out, self._outbox = self._outbox, []
            for event, instants in out:
                self._tell(self, event, instants)

    def _settle_clock(self) -> None:
        """Book the decoding steps done by now."""
        if self._step is None and self._jobs:
            self._book(self._clock.done_by(self._queue.now_ns))

    def _book(self, steps: int) -> None:
        if not steps:
            return
        self._clock.advance(steps)
        tokens = steps * len(self._jobs)
        self._context_tokens += tokens
        self.open_tokens += tokens
        self.decoded_tokens += tokens
        self.steps += steps

    def _schedule(self, at_ns: int) -> None:
        self._epoch = epoch = self._epoch + 1
        self._queue.at(at_ns, self._due, epoch)

    def _due(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        if self._step is not None:
            self._end_step(self._step)
        elif self._jobs:
            self._book(self._stretch)
        if self._jobs:
            self._finish_jobs()
        if self._posted:
            self._take_posted()
        self._plan(self._queue.now_ns)
        if self._outbox:
            self._flush()

    def _take_posted(self) -> None:
        self._between = True
        while self._posted:
            call, arguments = self._posted.popleft()
            call(*arguments)
        self._between = False

    def _plan(self, now_ns: int) -> None:
        """Start the next step or the next stretch of decoding, at a step's end."""
        if self._preempted:
            self._resume()
        batch = len(self._jobs)
        if not batch and not self._computes:
            if self._busy_since_ns is not None:
                self.busy_ns += now_ns - self._busy_since_ns
                self._busy_since_ns = None
            return
        if self._busy_since_ns is None:
            self._busy_since_ns = now_ns
        if self._computes:
            self._start_step(now_ns)
            return
        steps = self._next_end() - self._clock.steps
        room = self._free() // batch
        if room < steps:
            steps = min(steps, self._room_for_steps(batch, room))
            batch = len(self._jobs)
            if not batch:
                self._plan(now_ns)
                return
            steps = min(steps, self._next_end() - self._clock.steps)
        scale = self._time_scale
        first_s = scale * self.costs.step_s(batch, 0, self._context_tokens)
        growth_s = scale * batch * self.costs.kv_read_s_per_token
        self._clock.begin(now_ns, first_s, growth_s)
        self._stretch = steps
        self._schedule(self._clock.end_ns(steps))

    def _room_for_steps(self, batch: int, room: int) -> int:
        """Steps that fit, after evicting or preempting where none do."""
        if room >= _RESERVE_STEPS:
            return room
        self._make_room(batch * _RESERVE_STEPS)
        while self._free() < len(self._jobs):
            newest = next(reversed(self._jobs.values()))
            if len(self._jobs) == 1 and self._open_count == 1:
                self._stop(newest)
                failed = ev.WorkFailed(newest.sequence.request, newest.work, "KV does not fit the worker")
                self._outbox.append((failed, None))
                return 1
            self._preempt(newest)
            if not self._jobs:
                return 1
        return max(1, self._free() // len(self._jobs))

    def _preempt(self, job: DecodeJob) -> None:
        made = self._clock.steps - job.base
        if made > job.reported:
            self._outbox.append(self._tokens(job, made, None))
        self._stop(job)
        sequence = job.sequence
        job.first += made
        job.total -= made
        job.reported = 0
        self.open_tokens -= sequence.charged
        sequence.charged = 0
        sequence.goal = sequence.held + 1
        sequence.held = sequence.hit
        self.preemptions += 1
        self._preempted.append(job)

    def _resume(self) -> None:
        """Recompute preempted sequences once they and some steps of everybody fit."""
        while self._preempted:
            job = self._preempted[0]
            sequence = job.sequence
            margin = (len(self._jobs) + 1) * _RESERVE_STEPS
            if self._open_count > 1 and not self._make_room(sequence.goal - sequence.hit + margin):
                return
            self._preempted.popleft()
            self._charge(sequence, sequence.goal)
            self._computes.append(Compute(job.work, sequence, sequence.goal, decode=job))

    def _start_step(self, now_ns: int) -> None:
        budget = self._chunk_tokens
        taken: list[tuple[Compute, int]] = []
        first = tokens = pairs = read_tokens = 0
        for compute in self._computes:
            sequence = compute.sequence
            if taken and any(other.sequence is sequence for other, _ in taken):
                continue  # goes on where the earlier one ends
            held = sequence.held
            n = max(1, min(compute.end - held, budget))
            if not taken:
                first = n
            elif not self._fill_tail and max(n, first) > _ALONE_TOKENS:
                break
            taken.append((compute, n))
            tokens += n
            if n == 1:
                read_tokens += held + 1
            else:
                pairs += attention_pairs(n, held)
            budget -= n
            if budget <= 0:
                break
        self._step = taken
        duration_s = self.costs.step_s(tokens + len(self._jobs), pairs, read_tokens + self._context_tokens)
        self._clock.begin(now_ns, self._time_scale * duration_s, 0.0)
        self._schedule(self._clock.end_ns(1))

    def _end_step(self, step: list[tuple[Compute, int]]) -> None:
        self._step = None
        if self._jobs:
            self._book(1)
        else:
            self._clock.advance(1)
            self.steps += 1
        done: list[Compute] = []
        for compute, n in step:
            sequence = compute.sequence
            if sequence.seq not in self.sequences:
                continue  # closed meanwhile
            sequence.held += n
            self.computed_tokens += n
            if sequence.held >= compute.end:
                done.append(compute)
            for follower in sequence.followers:
                follower(sequence.held)
        for compute in done:
            try:
                self._computes.remove(compute)
            except ValueError:
                continue  # cancelled meanwhile
            self._computed(compute)

    def _computed(self, compute: Compute) -> None:
        sequence, job = compute.sequence, compute.decode
        if job is not None:
            job.base = self._clock.steps - 1
            job.start_held = sequence.held
            job.running = True
            self._jobs[job.work] = job
            self._context_tokens += sequence.held
            heapq.heappush(self._ends, (job.base + job.total, job.work))
            self.decoded_tokens += 1
            if job.total > 1:
                self._outbox.append(self._tokens(job, 1, None))
        elif compute.prefill:
            found, computed = sequence.found, sequence.goal - sequence.found
            self._outbox.append((ev.PrefillDone(sequence.request, compute.work, found, computed), None))
        else:
            self._outbox.append((ev.ExtendDone(sequence.request, compute.work), None))

    def _finish_jobs(self) -> None:
        while self._jobs and self._next_end() <= self._clock.steps:
            job = self._jobs[heapq.heappop(self._ends)[1]]
            self._outbox.append(self._tokens(job, job.total, "length"))
            self._stop(job)

    def _stop(self, job: DecodeJob) -> None:
        """Take a job out of the batch; its sequence keeps what it holds."""
        made = max(1, self._clock.steps - job.base)
        sequence = job.sequence
        sequence.held = job.start_held + made - 1
        sequence.charged = max(sequence.charged, sequence.held - sequence.hit)
        self._context_tokens -= sequence.held
        del self._jobs[job.work]
        job.running = False
        if not self._jobs:
            self._ends.clear()
            self._context_tokens = 0
        if self._token_instants:
            self._clock.forget_before(min((j.base for j in self._jobs.values()), default=self._clock.steps))

    def _tokens(
        self, job: DecodeJob, made: int, finish: str | None
    ) -> tuple[ev.TokensDecoded, Instants | None]:
        new = made - job.reported
        instants = self._clock.ends_ns(job.base + job.reported, new) if self._token_instants else None
        event = ev.TokensDecoded(job.sequence.request, job.work, job.first + job.reported, new, finish)
        job.reported = made
        return event, instants
