"""The engine port: what an inference engine must do to serve any role of PDD.

An engine owns *sequences*. A sequence is opened with the ids it is going to hold, takes KV by
import or by computing ids (`extend`), and may sample on from its last id. Prefill, extend-decode
and append-prefill are therefore one operation, `extend`, with different numbers of ids:

    P    open(prompt) -> p0;  extend(prompt[p0:n-1])                      -> export_kv
    RLD  open(prompt) -> p0;  import_kv(p0, n-1);  extend([prompt[n-1]], decode)
    MD   open(prompt) -> p0;  import_kv(p0, n-1);  extend([prompt[n-1], *relayed ids], decode)

The last prompt id is always computed where decoding starts, because sampling needs its logits and
KV alone does not carry them; so KV of a prompt of n ids means positions [0, n-1).

Calls return at once; `step()` computes one batch (continuous batching, chunked prefill) and returns
what happened. An engine belongs to one thread. Every engine passes tests/engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

SeqId: TypeAlias = int


class EngineInfo(msgspec.Struct, frozen=True):
    """What a worker says of itself in the handshake. KV may move only between equal `layout_hash`."""

    engine: str
    build: str
    model: str
    model_hash: str
    layout_hash: str
    vocab_size: int
    first_normal_id: int
    """Ids below are special or control tokens; prompts use [first_normal_id, vocab_size)."""
    max_context_tokens: int
    max_sequences: int
    kv_bytes_per_token: float
    emulated: bool = False
    recomputes: bool = False
    """It offers no KV: what it exports are ids, and an import computes them. Whoever reads the records must
    know, and what only KV has (bytes, hits) is not reported."""
    block_tokens: int = 1
    """KV moves in whole blocks of so many positions: a range that is cut elsewhere takes along the blocks it
    touches, so cut at multiples."""


class EngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to load. An engine refuses values it cannot serve by name; sizes are its whole capacity."""

    model: str = "tiny"
    """A name the engine knows, or the path of a model file."""
    model_sha256: str | None = None
    """Wanted hash of the model file; another one is refused."""
    max_sequences: int = 32
    """Open and cached sequences together."""
    max_context_tokens: int = 4096
    """Positions of one sequence."""
    capacity_tokens: int | None = None
    """Positions of all sequences together; None: all that the engine can hold."""
    batch_tokens: int = 512
    """Ids computed in one step at most: prefill chunks share it with running decodes."""
    threads: int = 1
    """Compute threads. More than there are free cores costs far more than it gives."""
    devices: str | None = None
    """Emulated: the accelerators modelled, such as 'h100x8'."""
    time_scale: float = 1.0
    """Emulated: real seconds per modelled second; 0.1 runs ten times faster."""
    byte_scale: float = 1.0
    """Emulated: real KV bytes per modelled byte (at least 8 a token are real)."""
    endpoint: str | None = None
    """OpenAI: base URL of the server that computes, such as 'http://10.0.0.1:8000'."""
    api_key_env: str | None = None
    """OpenAI: the environment variable that holds the key of the server."""
    vocab_size: int | None = None
    """OpenAI: ids that the server's model knows; no endpoint tells it."""


class Decode(msgspec.Struct, frozen=True):
    """How to sample on. Token `i` of the answer depends on (seed, i) and the logits only, so that it is
    the same whichever worker samples it. `first_index` is the answer index of the next sampled token;
    `max_tokens` counts from there, so at most indices [first_index, first_index + max_tokens) are sampled."""

    max_tokens: int
    first_index: int = 0
    seed: int = 0
    temperature: float = 0.0
    stop_ids: tuple[int, ...] = ()


class Extended(msgspec.Struct, frozen=True, tag=True):
    """`length` positions are now held; `pending` queued ids are not computed yet."""

    seq: SeqId
    length: int
    pending: int


class Sampled(msgspec.Struct, frozen=True, tag=True):
    """Answer token `index`; `margin` is the logit gap to the runner-up (null under temperature)."""

    seq: SeqId
    index: int
    token: int
    margin: float | None


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Sampling ended by itself: 'length' (max_tokens reached) or 'stop' (a stop id was sampled)."""

    seq: SeqId
    reason: str


class Evicted(msgspec.Struct, frozen=True, tag=True):
    """A closed, kept sequence lost its cached positions beyond `length` to make room."""

    seq: SeqId
    length: int


class SequenceFailed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not go on with this sequence; it must be closed."""

    seq: SeqId
    error: str


Output: TypeAlias = Extended | Sampled | Finished | Evicted | SequenceFailed


class Usage(msgspec.Struct, frozen=True):
    """Counters since start (tokens) and the present state of the KV cache. None: the engine cannot tell."""

    running: int
    waiting: int
    held_tokens: int | None
    capacity_tokens: int | None
    computed_tokens: int | None
    cached_tokens: int | None
    external_tokens: int
    decoded_tokens: int
    evicted_tokens: int | None
    steps: int | None
    busy_ns: int | None


class EngineError(Exception):
    """A call that the engine refuses; nothing changed. One line: what, and what would be right."""


class NoCapacity(EngineError):  # noqa: N818 - says what is so, as Evicted and Finished do
    """No slot or no room: every sequence is in use."""


class KvMismatch(EngineError):  # noqa: N818 - same
    """The blob is of another layout, range or build, or is damaged."""


class Engine(Protocol):
    """See the module's docstring. Positions are token indices from 0; ranges are half-open."""

    @property
    def info(self) -> EngineInfo: ...

    def open(self, seq: SeqId, ids: Sequence[int]) -> int:
        """Bind `seq` to `ids` and pin the longest prefix already held.

        Returns p0, the positions held, at most len(ids) - 1. Raises NoCapacity, or EngineError for a
        known `seq`, an empty prompt, ids outside the vocabulary or beyond the context."""
        ...

    def length(self, seq: SeqId) -> int:
        """Positions held now (computed or imported)."""
        ...

    def extend(self, seq: SeqId, ids: Sequence[int], decode: Decode | None = None) -> None:
        """Queue `ids` at the end; with `decode`, sample on once they are computed. Within the opened
        prompt they must equal its ids, and sampling starts at its end or later. Progress comes as
        Extended, one per chunk; an id sampled and fed back comes as the next Sampled only."""
        ...

    def export_kv(self, seq: SeqId, p0: int, p1: int) -> bytes:
        """KV of [p0, p1), lossless, self-describing (layout hash, range, checksum)."""
        ...

    def import_kv(
        self, seq: SeqId, p0: int, p1: int, blob: bytes | memoryview, ids: Sequence[int] = ()
    ) -> None:
        """Append an exported range; p0 must equal length(seq). `ids` are needed only for positions
        beyond the opened prompt (kv_transfer handoff). Raises KvMismatch; then nothing changed.

        An engine that recomputes takes time for it: length(seq) grows when it says Extended, and the next
        range may be given before that."""
        ...

    def stop(self, seq: SeqId) -> None:
        """Stop sampling and drop queued ids; the positions held stay. Idempotent."""
        ...

    def close(self, seq: SeqId, *, keep: bool) -> int:
        """End the sequence. With `keep` its positions stay as cached prefix for a later `open`;
        returns how many do."""
        ...

    def has_work(self) -> bool:
        """Whether step() would compute anything."""
        ...

    def step(self) -> Sequence[Output]:
        """Compute one batch and report, in order, what happened since the last call."""
        ...

    def usage(self) -> Usage: ...

    def shutdown(self) -> None:
        """Free everything. Idempotent."""
        ...


class KvPiece(msgspec.Struct, frozen=True):
    """Piece `part` of `parts`, which in order are `export_kv(seq, p0, p1)`, together `blob_bytes` long."""

    seq: SeqId
    p0: int
    p1: int
    part: int
    parts: int
    blob_bytes: int
    data: bytes


KvSink: TypeAlias = Callable[[KvPiece], None]


@runtime_checkable
class StreamsKv(Protocol):
    """An engine whose KV can leave before a step is over: layer by layer, as they are computed. Optional."""

    def follow_kv(self, seq: SeqId, sink: KvSink) -> int:
        """From the next step on, call `sink` from inside `step` with the KV of every position computed for
        `seq`, besides those who follow already. Returns the positions held now. What is found in the cache
        instead of computed (now or later) is not told: export it. Raises EngineError when not open."""
        ...

    def unfollow_kv(self, seq: SeqId, sink: KvSink) -> None:
        """End it. Closing ends it as well; idempotent."""
        ...


class Tokenizer(Protocol):
    """Text in front of a cluster that speaks token ids: the tokenizer of the model that the workers run."""

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer unless the client ignores them."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of these ids; a character may be split between two calls."""
        ...

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of a conversation of (role, content), ending where the assistant is to speak."""
        ...
