"""The worker's desk: the policy's actions become engine calls, engine outputs become policy events.

Everything here runs on the engine's thread; nothing here knows of sockets.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from harness.cluster.messages import Command, Sampling
from harness.cluster.progress import CLOSED
from harness.engine import (
    Decode,
    Engine,
    EngineError,
    Evicted,
    Extended,
    Finished,
    NoCapacity,
    Output,
    Sampled,
    SequenceFailed,
)
from harness.policy import actions as act
from harness.policy import events as ev

_MAX_WAITING: Final = 4096  # sequences that wait for a slot or for KV; beyond it openings fail

_Opening: TypeAlias = "tuple[act.Prefill | act.Open, str, array[int]]"  # with its session and its ids

Tell = Callable[[ev.Event, Sequence[int]], None]
"""Report an event, with the ids that belong to it."""


@dataclass(slots=True)
class _Compute:
    """Work that ends when the sequence has reached `end` positions (a decode ends by itself)."""

    work: ev.WorkId
    end: int
    is_prefill: bool = False


@dataclass(slots=True)
class _Sequence:
    request: ev.RequestId
    session: str
    context: array[int]
    opened_at: int
    """The engine's own hit when it was opened."""
    prompt_length: int
    end: int
    """Positions held once everything queued is computed."""
    computes: deque[_Compute] = field(default_factory=deque)
    decode: ev.WorkId | None = None
    awaits_kv: bool = False
    """Opened for KV that is on its way, and not complete yet."""
    error: str | None = None
    """Why the engine has given it up."""


class Desk:
    """One engine's sequences. `progress` is called with (sequence, positions) whenever KV has grown, and with
    CLOSED at the end."""

    def __init__(
        self, name: str, engine: Engine, tell: Tell, progress: Callable[[ev.WorkId, int], None]
    ) -> None:
        self._name = name
        self._engine = engine
        self._tell = tell
        self._progress = progress
        self._sequences: dict[ev.WorkId, _Sequence] = {}
        self._behind: deque[_Opening] = deque()
        """Openings that wait for KV of their own session."""
        self._waiting: deque[_Opening] = deque()
        self._cached_as: dict[ev.WorkId, str] = {}
        self._cached_last: dict[str, ev.WorkId] = {}

    def do(self, command: Command, ids: array[int]) -> None:
        """Carry out one command; whatever cannot be done is reported as failed work."""
        action = command.action
        try:
            match action:
                case act.Prefill() | act.Open():
                    self._open_or_wait(action, command.session or "", ids)
                case act.Extend():
                    self._extend(action, ids)
                case act.Decode():
                    assert command.sampling is not None
                    self._decode(action, command.sampling, ids)
                case act.Cancel():
                    self._cancel(action)
                case act.Close():
                    self._close(action)
                case act.Transfer() | act.Demote():
                    raise AssertionError("transfers belong to the KV sender")
                case _:
                    assert_never(action)
        except EngineError as error:
            self._tell(ev.WorkFailed(action.request, action.work, f"{self._name}: {error}"), ())

    def take(self, outputs: Sequence[Output]) -> None:
        """Report what a step of the engine brought."""
        finishes = {o.seq: o.reason for o in outputs if isinstance(o, Finished)}
        last = {o.seq: o.index for o in outputs if isinstance(o, Sampled)}
        for output in outputs:
            match output:
                case Sampled():
                    ends = output.index == last[output.seq]
                    self._sampled(output, finishes.get(output.seq) if ends else None)
                case Extended():
                    self._extended(output)
                case Evicted():
                    self._evicted(output)
                case SequenceFailed():
                    self._failed(output)
                case Finished():
                    pass  # told with its last token
                case _:
                    assert_never(output)

    def join(self, seq: ev.WorkId, p0: int, p1: int, blob: bytes, ids: array[int]) -> int:
        """Join received KV [p0, p1) to a sequence; `ids` are those of the range, as far as the sender knew
        them beyond the prompt. Returns the positions held now: fewer than p1 where the engine recomputes.
        Raises EngineError when it does not fit."""
        sequence = self._sequence(seq)
        known = max(sequence.prompt_length, sequence.end)
        beyond = ids[max(0, known - p0) :] if p1 > known else array("I")
        self._engine.import_kv(seq, p0, p1, blob, beyond)
        sequence.end = p1
        sequence.context = sequence.context[:known] + beyond
        held = self._engine.length(seq)
        self._held(seq, sequence, held)
        return held

    def failure(self, seq: ev.WorkId) -> str:
        """Why a sequence takes no KV any more."""
        sequence = self._sequences.get(seq)
        return (sequence.error if sequence is not None else None) or f"sequence {seq} was closed"

    def _held(self, seq: ev.WorkId, sequence: _Sequence, positions: int) -> None:
        self._progress(seq, positions)
        if positions >= sequence.prompt_length - 1:
            self._landed(sequence)

    def _landed(self, sequence: _Sequence) -> None:
        if sequence.awaits_kv:
            sequence.awaits_kv = False
            self._follow_up()

    def ids(self, seq: ev.WorkId, p0: int, p1: int) -> array[int]:
        """The ids at [p0, p1) of a sequence. Raises EngineError when it is not open."""
        return self._sequence(seq).context[p0:p1]

    def reset(self) -> None:
        """The router is gone: drop every sequence. The prefix cache stays."""
        self._waiting.clear()
        self._behind.clear()
        for seq in self._sequences:
            self._engine.close(seq, keep=False)
            self._progress(seq, CLOSED)
        self._sequences.clear()

    # ------------------------------------------------------------------- commands

    def _open_or_wait(self, action: act.Prefill | act.Open, session: str, ids: array[int]) -> None:
        """First come, first served: what needs little room does not overtake what needs much."""
        if self._is_on_its_way(session, ids):
            self._hold(self._behind, (action, session, ids))
            return
        if self._waiting:
            self._hold(self._waiting, (action, session, ids))
            return
        try:
            self._open(action, session, ids)
        except NoCapacity:
            if not self._sequences:
                raise  # nothing that could end and make room
            self._hold(self._waiting, (action, session, ids))

    def _is_on_its_way(self, session: str, ids: array[int]) -> bool:
        """The KV of a prefix of `ids` is just being received for an earlier turn of the session: the sequence
        is opened when that has landed, so that it counts as a hit and does not cross the WAN twice."""
        return any(
            sequence.awaits_kv
            and sequence.session == session
            and sequence.context == ids[: len(sequence.context)]
            for sequence in self._sequences.values()
        )

    def _follow_up(self) -> None:
        """KV has landed, or will not: what waited behind it is opened, or waits behind another."""
        behind, self._behind = self._behind, deque()
        for action, session, ids in behind:
            try:
                self._open_or_wait(action, session, ids)
            except EngineError as error:
                self._tell(ev.WorkFailed(action.request, action.work, f"{self._name}: {error}"), ())

    def _hold(self, queue: deque[_Opening], opening: _Opening) -> None:
        if len(self._behind) + len(self._waiting) >= _MAX_WAITING:
            raise EngineError(f"{_MAX_WAITING} sequences wait for a place already")
        queue.append(opening)

    def _open(self, action: act.Prefill | act.Open, session: str, ids: array[int]) -> None:
        seq = action.work
        held = self._engine.open(seq, ids)
        sequence = _Sequence(action.request, session, ids, held, len(ids), held)
        self._sequences[seq] = sequence
        sequence.awaits_kv = isinstance(action, act.Open) and held < action.positions
        if isinstance(action, act.Open):
            self._tell(ev.Opened(action.request, action.work, held), ())
        elif held >= action.positions:
            self._tell(ev.PrefillDone(action.request, action.work, held, 0), ())
        else:
            self._engine.extend(seq, ids[held : action.positions])
            sequence.end = action.positions
            sequence.computes.append(_Compute(action.work, action.positions, is_prefill=True))
        self._progress(seq, held)

    def _extend(self, action: act.Extend, ids: array[int]) -> None:
        sequence = self._sequence(action.seq)
        todo = self._missing(sequence, action.p0, ids)
        if not todo:
            self._tell(ev.ExtendDone(action.request, action.work), ())
            return
        self._engine.extend(action.seq, todo)
        self._grow(sequence, todo)
        sequence.computes.append(_Compute(action.work, sequence.end))

    def _decode(self, action: act.Decode, sampling: Sampling, ids: array[int]) -> None:
        sequence = self._sequence(action.seq)
        todo = self._missing(sequence, action.p0, ids)
        self._engine.extend(
            action.seq,
            todo,
            Decode(
                max_tokens=sampling.max_tokens - action.first,
                first_index=action.first,
                seed=sampling.seed,
                temperature=sampling.temperature,
                stop_ids=sampling.stop_ids,
            ),
        )
        self._grow(sequence, todo)
        sequence.decode = action.work
        self._landed(sequence)

    def _missing(self, sequence: _Sequence, p0: int, ids: array[int]) -> array[int]:
        """The ids from where the sequence stands. It may stand further than the router knows, never less."""
        if sequence.end < p0:
            raise EngineError(f"asked to go on from position {p0}, but only {sequence.end} are held")
        return ids[sequence.end - p0 :]

    @staticmethod
    def _grow(sequence: _Sequence, ids: array[int]) -> None:
        beyond = max(0, sequence.end + len(ids) - len(sequence.context))
        if beyond:
            sequence.context = sequence.context + ids[len(ids) - beyond :]
        sequence.end += len(ids)

    def _cancel(self, action: act.Cancel) -> None:
        for behind in self._behind:
            if behind[0].work == action.work:
                self._behind.remove(behind)
                self._tell(ev.Cancelled(action.request, action.work), ())
                return
        for waiting in self._waiting:
            if waiting[0].work == action.work:
                self._waiting.remove(waiting)
                self._tell(ev.Cancelled(action.request, action.work), ())
                self._admit()  # it may have been what the others waited behind
                return
        for seq, sequence in self._sequences.items():
            if sequence.decode == action.work or any(c.work == action.work for c in sequence.computes):
                self._engine.stop(seq)
                sequence.end = self._engine.length(seq)
                sequence.decode = None
                for compute in sequence.computes:
                    self._tell(ev.Cancelled(action.request, compute.work), ())
                if not any(c.work == action.work for c in sequence.computes):
                    self._tell(ev.Cancelled(action.request, action.work), ())
                sequence.computes.clear()
                return

    def _close(self, action: act.Close) -> None:
        sequence = self._sequences.pop(action.seq, None)
        if sequence is None:  # it never came to be; who waits for its KV must not go on waiting
            self._progress(action.seq, CLOSED)
            self._tell(ev.Closed(action.request, action.work, 0), ())
            return
        held = self._engine.close(action.seq, keep=action.keep)
        self._progress(action.seq, CLOSED)
        if held:
            earlier = self._cached_last.pop(sequence.session, None)
            if earlier is not None:
                self._cached_as.pop(earlier, None)
            self._cached_as[action.seq] = sequence.session
            self._cached_last[sequence.session] = action.seq
        self._tell(ev.Closed(action.request, action.work, held), ())
        self._admit()
        if sequence.awaits_kv:
            self._follow_up()

    def _admit(self) -> None:
        while self._waiting:
            action, session, ids = self._waiting[0]
            try:
                self._open(action, session, ids)
            except NoCapacity as error:
                if self._sequences:
                    return
                self._tell(ev.WorkFailed(action.request, action.work, f"{self._name}: {error}"), ())
            except EngineError as error:
                self._tell(ev.WorkFailed(action.request, action.work, f"{self._name}: {error}"), ())
            self._waiting.popleft()

    # -------------------------------------------------------------------- outputs

    def _sampled(self, output: Sampled, finish: str | None) -> None:
        sequence = self._sequences.get(output.seq)
        if sequence is None or sequence.decode is None:
            return
        work = sequence.decode
        sequence.context.append(output.token)
        self._progress(output.seq, len(sequence.context) - 1)
        if finish is None:
            sequence.end += 1
        else:
            sequence.decode = None
        self._tell(ev.TokensDecoded(sequence.request, work, output.index, 1, finish), (output.token,))

    def _extended(self, output: Extended) -> None:
        sequence = self._sequences.get(output.seq)
        if sequence is None:
            return
        self._held(output.seq, sequence, output.length)
        while sequence.computes and sequence.computes[0].end <= output.length:
            compute = sequence.computes.popleft()
            if compute.is_prefill:
                computed = compute.end - sequence.opened_at
                self._tell(ev.PrefillDone(sequence.request, compute.work, sequence.opened_at, computed), ())
            else:
                self._tell(ev.ExtendDone(sequence.request, compute.work), ())

    def _evicted(self, output: Evicted) -> None:
        session = self._cached_as.pop(output.seq, None)
        if session is not None and self._cached_last.get(session) == output.seq:
            del self._cached_last[session]
            self._tell(ev.CacheEvicted(self._name, session, output.length), ())

    def _failed(self, output: SequenceFailed) -> None:
        sequence = self._sequences.get(output.seq)
        if sequence is None:
            return
        works = [c.work for c in sequence.computes]
        if sequence.decode is not None:
            works.append(sequence.decode)
        sequence.computes.clear()
        sequence.decode = None
        sequence.error = output.error
        self._progress(output.seq, CLOSED)  # transfers that wait for its KV need not wait any longer
        for work in works:
            self._tell(ev.WorkFailed(sequence.request, work, f"{self._name}: {output.error}"), ())

    def _sequence(self, seq: ev.WorkId) -> _Sequence:
        sequence = self._sequences.get(seq)
        if sequence is None:
            raise EngineError(f"sequence {seq} is not open")
        return sequence
