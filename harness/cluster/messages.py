"""What router and workers say to each other. Commands carry the policy's own actions, reports its own
events, so that there is one vocabulary from the decision to the engine and back.

    /control   router -> worker  Hello, Command…        worker -> router  Welcome, Report…, Counters…
    /kv        sender -> receiver  KvBegin, KvSegment…, KvEnd | KvAbort     receiver -> sender  KvAck
    with a transport of its own for the bytes: KvOffer instead of KvSegment, each answered by KvTaken

Bodies: Command - the context ids it names; Report - the ids of its TokensDecoded, in order;
KvSegment - one engine KV blob; KvOffer - the transport's ticket for one.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from harness.cluster.frame import FrameError, pack, unpack
from harness.engine import EngineInfo, Usage
from harness.policy import actions as act
from harness.policy import events as ev

SECRET_HEADER = "X-PDD-Secret"  # noqa: S105 - the header's name, not a secret


def knows_secret(headers: Mapping[str, str], secret: str) -> bool:
    """Whether a request's headers carry the cluster's secret; whatever bytes a stranger sends."""
    given = headers.get(SECRET_HEADER, "").encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, secret.encode())


class _Message(msgspec.Struct, frozen=True, tag=True):
    pass


class Hello(_Message, frozen=True):
    """The router introduces itself; the KV layout it expects, once it knows one."""

    layout_hash: str | None
    model_hash: str | None


class Welcome(_Message, frozen=True):
    """The worker is ready."""

    info: EngineInfo


class Refusal(_Message, frozen=True):
    """The worker does not fit into this cluster: one line that names what differs."""

    error: str


class Sampling(_Message, frozen=True):
    """How a request's answer is sampled (see `harness.engine.Decode`)."""

    max_tokens: int
    seed: int
    temperature: float
    stop_ids: tuple[int, ...]


WorkerAction: TypeAlias = (
    act.Prefill | act.Open | act.Transfer | act.Demote | act.Extend | act.Decode | act.Cancel | act.Close
)


class Command(_Message, frozen=True):
    """One action for this worker. `session` goes with Prefill and Open, `sampling` with Decode, and
    `target_url` (where the receiver's /kv is reached from here) with Transfer."""

    action: WorkerAction
    session: str | None = None
    sampling: Sampling | None = None
    target_url: str | None = None


class Report(_Message, frozen=True):
    """What happened on a worker, in order. `id_counts` says how many of the body's ids each event has."""

    events: tuple[ev.Event, ...]
    id_counts: tuple[int, ...]


class Counters(_Message, frozen=True):
    """The worker's counters (a row of the worker_samples table). `t_ns` is the worker's own instant."""

    t_ns: int
    usage: Usage
    cpu_ns: int
    rss_bytes: int


class KvBegin(_Message, frozen=True):
    """KV [p0, p1) of a request begins to arrive for sequence `seq`, as transfer `work`."""

    request: str
    work: int
    seq: int
    p0: int
    p1: int
    layout_hash: str


class KvSegment(_Message, frozen=True):
    """One exported range [p0, p1) of it: part `part` of `parts` of the blob of `blob_bytes`."""

    work: int
    p0: int
    p1: int
    part: int
    parts: int
    blob_bytes: int


class KvOffer(_Message, frozen=True):
    """One exported range [p0, p1) of it, to be fetched: a blob of `blob_bytes`."""

    work: int
    p0: int
    p1: int
    blob_bytes: int


class KvTaken(_Message, frozen=True):
    """The offered range has been fetched, or never will be: the sender may let go of it."""

    work: int


class KvEnd(_Message, frozen=True):
    work: int


class KvAbort(_Message, frozen=True):
    work: int


class KvAck(_Message, frozen=True):
    """The receiver has joined the KV, or `error` says why it has not."""

    work: int
    error: str | None = None


Message: TypeAlias = (
    Hello
    | Welcome
    | Refusal
    | Command
    | Report
    | Counters
    | KvBegin
    | KvSegment
    | KvOffer
    | KvTaken
    | KvEnd
    | KvAbort
    | KvAck
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message, body: bytes | memoryview = b"") -> bytes:
    """One frame for the wire."""
    return pack(_encoder.encode(message), body)


def decode(frame: bytes) -> tuple[Message, memoryview]:
    """The message of a frame and its body. Raises FrameError for anything else."""
    head, body = unpack(frame)
    try:
        return _decoder.decode(head), body
    except msgspec.DecodeError as error:
        raise FrameError(f"frame with an unreadable head: {error}") from error
