"""The engine port over a backend of numbered KV slots: queues, prefix cache, batches, counters.

Every position of a sequence came from exactly one place: the prefix cache at `open`, an import, or a
computation here. So at any time, over all sequences ever opened,

    sum of lengths reached = cached_tokens + external_tokens + computed_tokens

which is the proof that nothing was computed twice.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence as Ids

from adapters.engines import envelope
from adapters.engines.backend import Backend, ComputeError, Row, Sample
from adapters.engines.schedule import Sequence, next_batch
from adapters.engines.slots import Slot, SlotCache
from harness.engine import (
    Decode,
    EngineError,
    EngineInfo,
    Evicted,
    Extended,
    Finished,
    NoCapacity,
    Output,
    Sampled,
    SeqId,
    SequenceFailed,
    Usage,
)


class SlotEngine:
    """See `harness.engine.Engine`."""

    def __init__(self, backend: Backend, *, capacity_tokens: int, batch_tokens: int) -> None:
        self._backend = backend
        self._info = backend.info
        self._cache = SlotCache(self._info.max_sequences, capacity_tokens)
        # Every running decode fits one batch, so none waits for another.
        self._batch_tokens = max(batch_tokens, self._info.max_sequences)
        self._open: dict[SeqId, Sequence] = {}
        self._outputs: list[Output] = []
        self._arrivals = 0
        self._computed = self._cached = self._external = self._decoded = self._evicted = 0
        self._steps = self._busy_ns = 0
        self._down = False

    @property
    def info(self) -> EngineInfo:
        return self._info

    def open(self, seq: SeqId, ids: Ids[int]) -> int:
        if seq in self._open:
            raise EngineError(f"sequence {seq} is open already; close it first or use another number")
        if not ids:
            raise EngineError(f"sequence {seq}: an empty prompt; a prompt has at least one id")
        self._check_ids(seq, ids)
        self._check_room(seq, len(ids))
        placement = self._cache.place(seq, ids)
        for evicted, length, lost in placement.evicted:
            self._outputs.append(Evicted(evicted, length))
            self._evicted += lost
        for index in placement.cleared:
            self._backend.truncate(index, 0)
        slot = placement.slot
        if placement.copy_from is not None:
            self._backend.copy(placement.copy_from, slot.index, placement.cached)
        else:
            self._backend.truncate(slot.index, placement.cached)
        self._open[seq] = Sequence(seq, slot, prompt_length=len(ids), end=placement.cached)
        self._cached += placement.cached
        return placement.cached

    def length(self, seq: SeqId) -> int:
        return self._sequence(seq).slot.held

    def extend(self, seq: SeqId, ids: Ids[int], decode: Decode | None = None) -> None:
        sequence = self._usable(seq)
        if sequence.decode is not None:
            raise EngineError(f"sequence {seq} is sampling; stop it before extending it")
        if not ids:
            raise EngineError(
                f"sequence {seq}: extend by no ids; the last id to sample from must be among them"
            )
        if decode is not None and decode.max_tokens < 1:
            raise EngineError(f"sequence {seq}: max_tokens is {decode.max_tokens}; sample at least 1")
        start, end = sequence.end, sequence.end + len(ids)
        if decode is not None and end < sequence.prompt_length:
            raise EngineError(
                f"sequence {seq}: cannot sample after {end} ids, within its prompt of "
                f"{sequence.prompt_length}; extend to the prompt's end first"
            )
        self._check_ids(seq, ids)
        self._check_room(seq, end)
        beyond = self._beyond_prompt(sequence, start, ids)
        self._reserve(sequence, end)
        sequence.slot.ids.extend(beyond)
        if sequence.pending == 0:
            self._arrivals += 1
            sequence.arrival = self._arrivals
        sequence.end = end
        sequence.decoding = False
        if decode is not None:
            sequence.decode, sequence.next_index = decode, decode.first_index

    def export_kv(self, seq: SeqId, p0: int, p1: int) -> bytes:
        held = self._usable(seq).slot.held
        if not 0 <= p0 < p1 <= held:
            raise EngineError(f"sequence {seq}: cannot export [{p0}, {p1}); it holds [0, {held})")
        payload = self._backend.read(self._open[seq].slot.index, p0, p1)
        return envelope.seal(self._info.layout_hash, p0, p1, payload)

    def import_kv(self, seq: SeqId, p0: int, p1: int, blob: bytes | memoryview, ids: Ids[int] = ()) -> None:
        sequence = self._usable(seq)
        slot = sequence.slot
        if sequence.pending:
            raise EngineError(
                f"sequence {seq} has {sequence.pending} queued ids; import before or after them"
            )
        if p0 != slot.held or p1 <= p0:
            raise EngineError(f"sequence {seq}: cannot import [{p0}, {p1}); it holds [0, {slot.held})")
        self._check_room(seq, p1)
        known = max(sequence.prompt_length, slot.held)
        if len(ids) != max(0, p1 - known):
            raise EngineError(
                f"sequence {seq}: import of [{p0}, {p1}) needs the {max(0, p1 - known)} ids beyond position "
                f"{known}, got {len(ids)}"
            )
        self._check_ids(seq, ids)
        payload = envelope.unseal(self._info.layout_hash, p0, p1, blob)
        self._backend.write(slot.index, p0, p1, payload)
        try:
            self._reserve(sequence, p1)
        except NoCapacity:
            self._backend.truncate(slot.index, p0)
            raise
        slot.ids.extend(array("i", ids))
        slot.held = sequence.end = p1
        self._external += p1 - p0

    def stop(self, seq: SeqId) -> None:
        sequence = self._sequence(seq)
        slot = sequence.slot
        sequence.decode, sequence.decoding = None, False
        sequence.end = slot.held
        slot.reserved = max(sequence.prompt_length, slot.held)
        del slot.ids[max(sequence.prompt_length, slot.held) :]

    def close(self, seq: SeqId, *, keep: bool) -> int:
        sequence = self._sequence(seq)
        del self._open[seq]
        slot = sequence.slot
        kept = self._cache.close(slot, keep=keep and not sequence.failed)
        if kept == 0:
            self._backend.truncate(slot.index, 0)
        return kept

    def has_work(self) -> bool:
        return any(s.pending for s in self._open.values())

    def step(self) -> Ids[Output]:
        started_ns = time.perf_counter_ns()
        batch = next_batch(self._open.values(), self._batch_tokens)
        if batch:
            self._compute(batch)
            self._steps += 1
            self._busy_ns += time.perf_counter_ns() - started_ns
        outputs, self._outputs = self._outputs, []
        return outputs

    def usage(self) -> Usage:
        running = sum(1 for s in self._open.values() if s.pending)
        return Usage(
            running=running,
            waiting=len(self._open) - running,
            held_tokens=self._cache.held_tokens(),
            capacity_tokens=self._cache.capacity_tokens,
            computed_tokens=self._computed,
            cached_tokens=self._cached,
            external_tokens=self._external,
            decoded_tokens=self._decoded,
            evicted_tokens=self._evicted,
            steps=self._steps,
            busy_ns=self._busy_ns,
        )

    def shutdown(self) -> None:
        if not self._down:
            self._down = True
            self._open.clear()
            self._backend.free()

    def _compute(self, batch: list[tuple[Sequence, int]]) -> None:
        rows = [self._row(sequence, n) for sequence, n in batch]
        try:
            samples = self._backend.compute(rows)
        except ComputeError as error:
            for sequence, _ in batch:
                self._fail(sequence, str(error))
            return
        for (sequence, n), sample in zip(batch, samples, strict=True):
            sequence.slot.held += n
            self._computed += n
            if not sequence.decoding:
                self._outputs.append(Extended(sequence.seq, sequence.slot.held, sequence.pending))
            if sample is not None:
                self._take(sequence, sample)

    @staticmethod
    def _row(sequence: Sequence, n: int) -> Row:
        held = sequence.slot.held
        last = held + n == sequence.end
        return Row(
            slot=sequence.slot.index,
            start=held,
            ids=sequence.slot.ids[held : held + n],
            decode=sequence.decode if last else None,
            index=sequence.next_index,
        )

    def _take(self, sequence: Sequence, sample: Sample) -> None:
        """Report a sampled id, and queue it unless sampling ends with it."""
        decode = sequence.decode
        assert decode is not None
        index = sequence.next_index
        self._decoded += 1
        self._outputs.append(Sampled(sequence.seq, index, sample.token, sample.margin))
        sequence.next_index = index + 1
        if sample.token in decode.stop_ids:
            self._finish(sequence, "stop")
        elif (
            index + 1 - decode.first_index >= decode.max_tokens
            or sequence.end >= self._info.max_context_tokens
        ):
            self._finish(sequence, "length")
        elif not self._grow(sequence, sequence.end + 1):
            self._fail(
                sequence, f"no room in the KV cache for position {sequence.end}: every other one is in use"
            )
        else:
            if not sequence.decoding:
                self._arrivals += 1
                sequence.arrival = self._arrivals
            sequence.slot.ids.append(sample.token)
            sequence.end += 1
            sequence.decoding = True

    def _finish(self, sequence: Sequence, reason: str) -> None:
        sequence.decode, sequence.decoding = None, False
        self._outputs.append(Finished(sequence.seq, reason))

    def _fail(self, sequence: Sequence, error: str) -> None:
        self.stop(sequence.seq)
        sequence.failed = True
        self._outputs.append(SequenceFailed(sequence.seq, error))

    def _grow(self, sequence: Sequence, length: int) -> bool:
        emptied = self._cache.grow(sequence.slot, length)
        if emptied is None:
            return False
        for slot in emptied:
            self._evict(slot)
        return True

    def _reserve(self, sequence: Sequence, length: int) -> None:
        if not self._grow(sequence, length):
            raise NoCapacity(
                f"sequence {sequence.seq}: no room for {length} positions; every one of "
                f"{self._cache.capacity_tokens} is in use"
            )

    def _evict(self, slot: Slot) -> None:
        assert slot.seq is not None
        self._outputs.append(Evicted(slot.seq, 0))
        self._evicted += slot.held
        self._backend.truncate(slot.index, 0)
        self._cache.release(slot)

    def _sequence(self, seq: SeqId) -> Sequence:
        sequence = self._open.get(seq)
        if sequence is None:
            raise EngineError(f"sequence {seq} is not open")
        return sequence

    def _usable(self, seq: SeqId) -> Sequence:
        sequence = self._sequence(seq)
        if sequence.failed:
            raise EngineError(f"sequence {seq} has failed; close it")
        return sequence

    def _check_ids(self, seq: SeqId, ids: Ids[int]) -> None:
        if ids and (min(ids) < 0 or max(ids) >= self._info.vocab_size):
            raise EngineError(f"sequence {seq}: ids must lie in [0, {self._info.vocab_size})")

    def _check_room(self, seq: SeqId, length: int) -> None:
        if length > self._info.max_context_tokens:
            raise EngineError(
                f"sequence {seq}: {length} positions; the context of this engine is "
                f"{self._info.max_context_tokens}"
            )

    @staticmethod
    def _beyond_prompt(sequence: Sequence, start: int, ids: Ids[int]) -> array[int]:
        """The ids that lie beyond the opened prompt; those within must repeat it."""
        given = array("i", ids)
        within = max(0, min(sequence.prompt_length - start, len(given)))
        if given[:within] != sequence.slot.ids[start : start + within]:
            raise EngineError(
                f"sequence {sequence.seq}: ids differ from the opened prompt within "
                f"[{start}, {start + within}); extend with the prompt's own ids there"
            )
        return given[within:]
