"""The engine port over completions of another server. See the package's docstring.

A sequence is its ids, and how far the server is known to have computed them. Prefill, import and extension
are all one call for the ids so far that asks for a single token, which is thrown away; a decode is a call
that streams. One call a sequence at a time: what is queued meanwhile goes into the next.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import queue
from array import array
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import Final

from adapters.engines import envelope
from adapters.engines.openai.call import Caller, Part
from harness.engine import (
    Decode,
    Engine,
    EngineError,
    EngineInfo,
    EngineOptions,
    Extended,
    Finished,
    KvMismatch,
    NoCapacity,
    Output,
    Sampled,
    SeqId,
    SequenceFailed,
    Usage,
)

_WAIT_S: Final = 0.005
"""A step waits so long for something to arrive: commands that come meanwhile wait for its end."""
_PROBE_S: Final = 120.0
_ID_BYTES: Final = 4


@dataclass(slots=True)
class _Sequence:
    prompt_length: int
    ids: array[int]
    """The prompt, then what was added to it or sampled."""
    held: int = 0
    """Positions that the server has computed for us at some time."""
    end: int = 0
    """Positions asked for."""
    call: int | None = None
    call_end: int = 0
    decode: Decode | None = None
    sampled: int = 0
    """Tokens of the decode so far."""
    failed: bool = False


def load(options: EngineOptions) -> Engine:
    """See `adapters.engines.load_engine`. The server must be up, serve the model and give token ids."""
    if options.endpoint is None:
        raise EngineError("openai: no endpoint; set cluster.endpoints, such as prefill = 'http://HOST:PORT'")
    if options.vocab_size is None:
        raise EngineError("openai: engine_options.vocab_size is not set; prompts need ids the model knows")
    if options.model_sha256 is not None:
        raise EngineError("openai: model_sha256 is set, but no server tells its weights; leave it out")
    key = os.environ.get(options.api_key_env, "") if options.api_key_env else None
    if key == "":
        raise EngineError(f"openai: {options.api_key_env} is not set in the environment")
    caller = Caller(options.endpoint, options.model, key)
    try:
        _check_model(caller, options)
        _check_ids(caller)
    except EngineError:
        caller.close()
        raise
    return OpenAiEngine(caller, options, options.vocab_size)


class OpenAiEngine:
    """See `harness.engine.Engine`."""

    def __init__(self, caller: Caller, options: EngineOptions, vocab_size: int) -> None:
        self._caller = caller
        self._info = EngineInfo(
            engine="openai",
            build=caller.url,
            model=options.model,
            model_hash=_digest(f"model {options.model}"),
            layout_hash=_digest(f"ids of {options.model}"),
            vocab_size=vocab_size,
            first_normal_id=0,
            max_context_tokens=options.max_context_tokens,
            max_sequences=options.max_sequences,
            kv_bytes_per_token=_ID_BYTES,
            recomputes=True,
        )
        self._open: dict[SeqId, _Sequence] = {}
        self._called: dict[int, SeqId] = {}
        self._numbers = itertools.count()
        self._outputs: list[Output] = []
        self._decoded = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def open(self, seq: SeqId, ids: Ids[int]) -> int:
        """What the server's cache holds is not known: always 0."""
        if seq in self._open:
            raise EngineError(f"sequence {seq} is open already; close it first or use another number")
        if not ids:
            raise EngineError(f"sequence {seq}: an empty prompt; a prompt has at least one id")
        self._check_room(seq, len(ids))
        if len(self._open) >= self._info.max_sequences:
            raise NoCapacity(f"all {self._info.max_sequences} sequences are open; close one first")
        self._open[seq] = _Sequence(len(ids), array("I", ids))
        return 0

    def length(self, seq: SeqId) -> int:
        return self._sequence(seq).held

    def extend(self, seq: SeqId, ids: Ids[int], decode: Decode | None = None) -> None:
        sequence = self._usable(seq)
        if sequence.decode is not None:
            raise EngineError(f"sequence {seq} is sampling; stop it before extending it")
        if not ids:
            raise EngineError(f"sequence {seq}: extend by no ids; the last id to sample from is one of them")
        start, end = sequence.end, sequence.end + len(ids)
        if decode is not None:
            self._check_decode(sequence, seq, end, decode)
        self._add(sequence, seq, start, ids)
        if decode is not None:
            sequence.decode, sequence.sampled = decode, 0
        self._call_for(seq, sequence)

    def export_kv(self, seq: SeqId, p0: int, p1: int) -> bytes:
        """The ids: all there is to give."""
        sequence = self._usable(seq)
        if not 0 <= p0 < p1 <= sequence.held:
            raise EngineError(f"sequence {seq}: cannot export [{p0}, {p1}); it holds [0, {sequence.held})")
        return envelope.seal(self._info.layout_hash, p0, p1, sequence.ids[p0:p1].tobytes())

    def import_kv(self, seq: SeqId, p0: int, p1: int, blob: bytes | memoryview, ids: Ids[int] = ()) -> None:
        """Let the server compute them. `Extended` tells when it has."""
        sequence = self._usable(seq)
        if p0 != sequence.end or p1 <= p0:
            raise EngineError(f"sequence {seq}: cannot import [{p0}, {p1}); it goes on at {sequence.end}")
        payload = envelope.unseal(self._info.layout_hash, p0, p1, blob)
        if len(payload) != (p1 - p0) * _ID_BYTES:
            raise KvMismatch(f"blob of [{p0}, {p1}) has {len(payload)} bytes, not {_ID_BYTES} an id")
        given = array("I", bytes(payload))
        beyond = max(0, p1 - max(sequence.prompt_length, p0))
        if len(ids) != beyond or given[len(given) - beyond :] != array("I", ids):
            raise EngineError(f"sequence {seq}: import of [{p0}, {p1}) needs {beyond} ids beyond its prompt")
        self._add(sequence, seq, p0, given)
        self._call_for(seq, sequence)

    def stop(self, seq: SeqId) -> None:
        sequence = self._sequence(seq)
        if sequence.call is not None:
            self._caller.cancel(sequence.call)
            del self._called[sequence.call]
            sequence.call = None
        sequence.decode = None
        sequence.end = sequence.held
        del sequence.ids[max(sequence.prompt_length, sequence.held) :]

    def close(self, seq: SeqId, *, keep: bool) -> int:
        """Whether the server keeps it is not known: 0."""
        del keep
        self.stop(seq)
        del self._open[seq]
        return 0

    def has_work(self) -> bool:
        return bool(self._called or self._outputs)

    def step(self) -> Ids[Output]:
        """Take what has arrived; wait a moment if nothing has."""
        try:
            if self._called and not self._outputs:
                self._take(self._caller.parts.get(timeout=_WAIT_S))
            while True:
                self._take(self._caller.parts.get_nowait())
        except queue.Empty:
            pass
        outputs, self._outputs = self._outputs, []
        return outputs

    def usage(self) -> Usage:
        running = len(self._called)
        return Usage(
            running=running,
            waiting=len(self._open) - running,
            held_tokens=None,
            capacity_tokens=None,
            computed_tokens=None,
            cached_tokens=None,
            external_tokens=0,
            decoded_tokens=self._decoded,
            evicted_tokens=None,
            steps=None,
            busy_ns=None,
        )

    def shutdown(self) -> None:
        self._open.clear()
        self._called.clear()
        self._caller.close()

    # ------------------------------------------------------------------- calls

    def _call_for(self, seq: SeqId, sequence: _Sequence) -> None:
        """Ask for what is queued, unless a call is under way: its end will ask for the rest."""
        if sequence.call is not None:
            return
        number = next(self._numbers)
        sequence.call, sequence.call_end = number, sequence.end
        self._called[number] = seq
        decode = sequence.decode
        if decode is None:
            self._caller.start(number, sequence.ids[: sequence.end], max_tokens=1)
        else:
            self._caller.start(
                number,
                sequence.ids[: sequence.end],
                max_tokens=decode.max_tokens,
                seed=decode.seed,
                stop_token_ids=list(decode.stop_ids),
            )

    def _take(self, part: Part) -> None:
        seq = self._called.get(part.number)
        if seq is None:
            return  # it was cancelled
        sequence = self._open[seq]
        if part.error is not None:
            self._fail(seq, sequence, part.error)
        elif sequence.decode is None or sequence.call_end < sequence.end:
            self._extended(seq, sequence, part)
        else:
            self._sampled(seq, sequence, part)

    def _extended(self, seq: SeqId, sequence: _Sequence, part: Part) -> None:
        """The token is of no interest, but that it came says that everything before it is computed."""
        if part.finish is None:
            return
        assert sequence.call is not None
        del self._called[sequence.call]
        sequence.call, sequence.held = None, sequence.call_end
        self._outputs.append(Extended(seq, sequence.held, sequence.end - sequence.held))
        if sequence.held < sequence.end:
            self._call_for(seq, sequence)

    def _sampled(self, seq: SeqId, sequence: _Sequence, part: Part) -> None:
        """An answer ends with the token that ends it; the server's own word for it may come later."""
        decode = sequence.decode
        assert decode is not None
        for token in part.ids:
            sequence.held = sequence.held + 1 if sequence.sampled else sequence.end
            sequence.ids.append(token)
            self._outputs.append(Sampled(seq, decode.first_index + sequence.sampled, token, None))
            sequence.sampled += 1
            self._decoded += 1
            if token in decode.stop_ids or sequence.sampled == decode.max_tokens:
                self._finish(seq, sequence, "stop" if token in decode.stop_ids else "length")
                return
        if part.finish is not None:
            error = f"the answer ended ({part.finish}) after {sequence.sampled} of {decode.max_tokens} tokens"
            self._fail(seq, sequence, f"{self._caller.url}: {error}")

    def _finish(self, seq: SeqId, sequence: _Sequence, reason: str) -> None:
        assert sequence.call is not None
        del self._called[sequence.call]
        sequence.call, sequence.decode, sequence.end = None, None, sequence.held
        del sequence.ids[max(sequence.prompt_length, sequence.held) :]
        self._outputs.append(Finished(seq, reason))

    def _fail(self, seq: SeqId, sequence: _Sequence, error: str) -> None:
        self.stop(seq)
        sequence.failed = True
        self._outputs.append(SequenceFailed(seq, error))

    # ------------------------------------------------------------------ checks

    def _add(self, sequence: _Sequence, seq: SeqId, start: int, ids: Ids[int]) -> None:
        """Queue ids at `start`; those within the prompt must be its own."""
        end = start + len(ids)
        self._check_room(seq, end)
        given, known = array("I", ids), len(sequence.ids)
        if given[: max(0, known - start)] != sequence.ids[start:end]:
            raise EngineError(f"sequence {seq}: ids differ from the opened prompt within [{start}, {end})")
        sequence.ids.extend(given[max(0, known - start) :])
        sequence.end = end

    def _check_decode(self, sequence: _Sequence, seq: SeqId, end: int, decode: Decode) -> None:
        if decode.max_tokens < 1:
            raise EngineError(f"sequence {seq}: max_tokens is {decode.max_tokens}; sample at least 1")
        if end < sequence.prompt_length:
            raise EngineError(f"sequence {seq}: cannot sample within its prompt; extend to the prompt's end")
        if decode.temperature > 0.0:
            raise EngineError(
                f"sequence {seq}: temperature {decode.temperature:g} over HTTP gives another answer on every "
                "worker; only 0 can change hands"
            )

    def _check_room(self, seq: SeqId, length: int) -> None:
        if length > self._info.max_context_tokens:
            raise EngineError(
                f"sequence {seq}: {length} positions; the context is {self._info.max_context_tokens}"
            )

    def _sequence(self, seq: SeqId) -> _Sequence:
        if (sequence := self._open.get(seq)) is None:
            raise EngineError(f"sequence {seq} is not open")
        return sequence

    def _usable(self, seq: SeqId) -> _Sequence:
        sequence = self._sequence(seq)
        if sequence.failed:
            raise EngineError(f"sequence {seq} has failed; close it")
        return sequence


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_model(caller: Caller, options: EngineOptions) -> None:
    served = {model["id"]: model for model in caller.models()}
    if options.model not in served:
        raise EngineError(
            f"openai: {caller.url} does not serve {options.model!r}; it serves: {', '.join(served)}"
        )
    limit = served[options.model].get("max_model_len")
    if limit is not None and options.max_context_tokens > limit:
        raise EngineError(
            f"openai: max_context_tokens is {options.max_context_tokens}; {caller.url} serves at most {limit}"
        )


def _check_ids(caller: Caller) -> None:
    """One token, as a probe: text alone cannot be handed over."""
    caller.start(-1, [1], max_tokens=1)
    ids: list[int] = []
    while True:
        try:
            part = caller.parts.get(timeout=_PROBE_S)
        except queue.Empty:
            raise EngineError(f"openai: {caller.url} did not answer within {_PROBE_S:g} s") from None
        if part.error is not None:
            raise EngineError(f"openai: {part.error}")
        ids += part.ids
        if part.finish is not None:
            break
    if len(ids) != 1:
        raise EngineError(
            f"openai: {caller.url} sends no token ids though asked by return_token_ids; a vLLM server does"
        )
