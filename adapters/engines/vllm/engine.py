"""The engine port over an embedded vLLM: sequences and cached prefixes as with any slot engine, but
vLLM makes the batches.

What is queued for a sequence becomes one vLLM request for all its ids, and vLLM computes what it does not
have: it finds the full blocks of the held prefix by hash, and the connector brings the rest.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING

from adapters.engines.backend import Sample
from adapters.engines.schedule import Sequence
from adapters.engines.slot_engine import SlotEngine
from adapters.engines.vllm import installation
from adapters.engines.vllm.job import Job
from adapters.engines.vllm.layer_stream import LayerStream
from adapters.engines.vllm.source_counts import SourceCounts
from harness.engine import Decode, Engine, EngineOptions, Extended, KvSink, Output, SeqId

if TYPE_CHECKING:
    from adapters.engines.vllm.core import Core

_IDLE_STEPS = 100
"""Steps in which vLLM schedules nothing although a request waits, before that is called an error."""


def load(options: EngineOptions) -> Engine:
    """See `adapters.engines.load_engine`."""
    build = installation.check()
    installation.prepare(options.threads)
    from adapters.engines.vllm.core import Core  # noqa: PLC0415 - imports vLLM, which takes seconds

    return VllmEngine(Core(options, build), options)


class VllmEngine(SlotEngine):
    """See `harness.engine.Engine`. Belongs to one thread, as vLLM's steps run in it."""

    def __init__(self, core: Core, options: EngineOptions) -> None:
        self._core = core
        self._store = core.new_store()
        super().__init__(
            self._store,
            capacity_tokens=options.capacity_tokens or options.max_sequences * options.max_context_tokens,
            batch_tokens=options.batch_tokens,
        )
        self._jobs: dict[SeqId, Job] = {}
        self._streams: dict[SeqId, LayerStream] = {}
        self._names = itertools.count()
        self._idle_steps = 0
        self.counts = SourceCounts()

    def extend(self, seq: SeqId, ids: Ids[int], decode: Decode | None = None) -> None:
        super().extend(seq, ids, decode)
        if seq not in self._jobs:
            self._submit(self._open[seq])

    def follow_kv(self, seq: SeqId, sink: KvSink) -> int:
        """See `harness.engine.StreamsKv`."""
        sequence = self._usable(seq)
        stream = self._streams.get(seq)
        if stream is None:
            stream = LayerStream(seq, self._info.layout_hash, self._store.n_layers)
            self._streams[seq] = stream
        stream.sinks.append(sink)
        if seq in self._jobs:
            self._jobs[seq].stream = stream
        return sequence.slot.held

    def unfollow_kv(self, seq: SeqId, sink: KvSink) -> None:
        """See `harness.engine.StreamsKv`."""
        stream = self._streams.get(seq)
        if stream is not None and sink in stream.sinks:
            stream.sinks.remove(sink)

    def stop(self, seq: SeqId) -> None:
        self._abort(self._sequence(seq))
        super().stop(seq)

    def close(self, seq: SeqId, *, keep: bool) -> int:
        self._abort(self._sequence(seq))
        self._streams.pop(seq, None)
        return super().close(seq, keep=keep)

    def step(self) -> Ids[Output]:
        if self._jobs:
            started_ns = time.perf_counter_ns()
            self._compute_jobs()
            self._steps += 1
            self._busy_ns += time.perf_counter_ns() - started_ns
        outputs, self._outputs = self._outputs, []
        return outputs

    def audit(self) -> str | None:
        """One line if vLLM's own counters disagree with `usage`; None if every position's origin agrees."""
        return self.counts.disagreement(self._computed)

    def shutdown(self) -> None:
        for seq in list(self._jobs):
            self._abort(self._open[seq])
        super().shutdown()
        self._core.shutdown()

    def _submit(self, sequence: Sequence) -> None:
        """Make a vLLM request of what is queued."""
        slot = sequence.slot
        job = Job(
            name=f"{sequence.seq}/{next(self._names)}",
            end=sequence.end,
            held=slot.held,
            staged=self._store.lend(slot.index, slot.held),
            decode=sequence.decode,
            stream=self._streams.get(sequence.seq),
        )
        self._core.add(job, slot.ids[: sequence.end].tolist())
        self._jobs[sequence.seq] = job

    def _abort(self, sequence: Sequence) -> None:
        """End the request at work; what it has computed stays."""
        job = self._jobs.pop(sequence.seq, None)
        if job is not None:
            self._core.abort(job)
            self._store.end(sequence.slot.index, job)
            self.counts.ended(job)

    def _compute_jobs(self) -> None:
        answers = self._core.step()
        idle = True
        for seq, job in list(self._jobs.items()):
            if job.base is not None:
                idle = False
                token, ended = answers.get(job.name, (None, False))
                self._advance(self._open[seq], job, token, ended=ended)
        self._idle_steps = self._idle_steps + 1 if idle else 0
        if self._idle_steps >= _IDLE_STEPS:
            for seq in list(self._jobs):
                self._fail(
                    self._open[seq], f"vLLM scheduled nothing in {_IDLE_STEPS} steps though requests wait"
                )

    def _advance(self, sequence: Sequence, job: Job, token: int | None, *, ended: bool) -> None:
        """Report what the step did to one sequence."""
        slot = sequence.slot
        assert job.base is not None
        if job.counted == job.base:
            self._begin(sequence, job)
        positions: int = job.computed if ended else job.request.num_computed_tokens
        again = job.base < job.believed or positions < job.counted
        self._computed += positions - job.counted
        slot.held = job.counted = positions
        if ended:
            del self._jobs[sequence.seq]
            self._store.end(slot.index, job)
            self.counts.ended(job)
        if again:
            self._fail(
                sequence, f"vLLM computes anew what was held: {job.believed} positions, it found {job.base}"
            )
            return
        if not sequence.decoding:
            self._outputs.append(Extended(sequence.seq, positions, sequence.pending))
        if token is not None and job.decode is not None:
            self._take(sequence, Sample(token, job.margin))
            if ended != (sequence.decode is None) and not sequence.failed:
                self._fail(
                    sequence, f"vLLM {'ended' if ended else 'went on with'} an answer at its token {token}"
                )
        if ended and sequence.pending and not sequence.failed:
            self._submit(sequence)

    def _begin(self, sequence: Sequence, job: Job) -> None:
        """vLLM has scheduled the request: from here on its blocks are the truth."""
        self._store.begin(sequence.slot.index, job)
        self.counts.admitted(job)
        # Another sequence may have computed more of this prefix since it was opened.
        self._cached += max(0, (job.base or 0) - job.believed)
