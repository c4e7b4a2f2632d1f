"""A replay plan as one file: a header, then one length-prefixed msgpack record a session.

Records carry the hash of their session id in front, so a shard skips the others' without decoding them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, get_type_hints

import msgspec

from workloads.errors import TraceError
from workloads.replay_plan import PlanHeader, ReplayPlan, ReplaySession, ReplayTurn
from workloads.spelling import Spelling

_MAGIC: Final = b"PDDPLAN1"
_LENGTH: Final = struct.Struct("<I")
_RECORD: Final = struct.Struct("<QI")  # hash of the session id, length


# As in workloads.replay_plan, but for the spelling, which the header tells once.
_TYPES: Final = get_type_hints(ReplayTurn)
_STORED: Final = [field.name for field in dataclasses.fields(ReplayTurn) if field.name != "spelling"]
_Turn: Final = msgspec.defstruct(
    "_Turn", [(name, _TYPES[name]) for name in _STORED], frozen=True, array_like=True
)
_Session: Final = msgspec.defstruct(
    "_Session",
    [
        ("session_id", str),
        ("start_ns", int),
        ("shared_prefix", tuple[str, int] | None),
        ("turns", GenericAlias(tuple, (_Turn, ...))),
    ],
    frozen=True,
    array_like=True,
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADER: Final = msgspec.msgpack.Decoder(PlanHeader)
_SESSION: Final = msgspec.msgpack.Decoder(_Session)


def shard_of(session_id: str, shards: int) -> int:
    """Which shard a session belongs to: stable across runs and machines."""
    return _hash(session_id) % shards


def write_plan(plan: ReplayPlan, path: Path | str) -> None:
    """Write the plan; an existing file is replaced."""
    with Path(path).open("wb") as out:
        header = _ENCODER.encode(plan.header)
        out.write(_MAGIC + _LENGTH.pack(len(header)) + header)
        for session in plan.sessions:
            turns = tuple(_Turn(*(getattr(t, name) for name in _STORED)) for t in session.turns)
            record = _ENCODER.encode(
                _Session(session.session_id, session.start_ns, session.shared_prefix, turns)
            )
            out.write(_RECORD.pack(_hash(session.session_id), len(record)) + record)


def read_plan(path: Path | str, shard: int = 0, shards: int = 1) -> ReplayPlan:
    """The plan, or the sessions of one shard of it; the header is the whole plan's either way."""
    if not 0 <= shard < shards:
        raise TraceError(f"must be 0..{shards - 1}", field="shard", value=shard)
    try:
        data = memoryview(Path(path).read_bytes())
    except OSError as e:
        raise TraceError(f"cannot be read: {e.strerror or e}", file=path) from e
    try:
        return _decoded(data, shard, shards)
    except (msgspec.DecodeError, struct.error) as e:
        raise TraceError(f"not a replay plan, or cut off: {e}", file=path) from e


def _decoded(data: memoryview, shard: int, shards: int) -> ReplayPlan:
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise msgspec.DecodeError(f"does not begin with {_MAGIC.decode()}")
    at = len(_MAGIC)
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    header = _HEADER.decode(data[at : at + length])
    at += length
    spelling = Spelling(header.vocabulary, header.block_size)
    sessions: list[ReplaySession] = []
    while at < len(data):
        key, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise msgspec.DecodeError("the last record is cut off")
        if key % shards == shard:
            sessions.append(_session(_SESSION.decode(data[at : at + length]), spelling))
        at += length
    return ReplayPlan(header, tuple(sessions))


def _session(s: Any, spelling: Spelling) -> ReplaySession:
    turns = tuple(ReplayTurn(**msgspec.structs.asdict(t), spelling=spelling) for t in s.turns)
    return ReplaySession(s.session_id, s.start_ns, turns, s.shared_prefix)


def _hash(session_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(session_id.encode(), digest_size=8).digest(), "little")
