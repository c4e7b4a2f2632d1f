"""The self-describing wrapper of exported KV: range, layout and size before the engine's own bytes, a
checksum after them, so that a blob can be sent while its payload is still being computed.

    magic 8 | version u16 | reserved u16 | p0 u32 | p1 u32 | payload_bytes u64 | layout hash 32 | payload
    | crc32 u32

All little-endian. The checksum covers the payload; header damage shows as a wrong magic, range, size or
layout, and the few bits that could slip through (p0, p1) are compared with what the receiver asked for.
"""

from __future__ import annotations

import struct
import zlib

from harness.engine import KvMismatch

_MAGIC = b"PDDKV\r\n\x1a"
_VERSION = 2
_HEADER = struct.Struct("<8sHHIIQ32s")
_TRAILER = struct.Struct("<I")

HEADER_BYTES = _HEADER.size
TRAILER_BYTES = _TRAILER.size


def header(layout_hash: str, p0: int, p1: int, payload_bytes: int) -> bytes:
    """What goes before the payload of [p0, p1). `layout_hash` is 64 hexadecimal digits."""
    return _HEADER.pack(_MAGIC, _VERSION, 0, p0, p1, payload_bytes, bytes.fromhex(layout_hash))


def trailer(crc: int) -> bytes:
    """What goes after it; `crc` is zlib.crc32 of the payload."""
    return _TRAILER.pack(crc)


def seal(layout_hash: str, p0: int, p1: int, payload: bytes | memoryview) -> bytes:
    """Wrap the KV of positions [p0, p1)."""
    before = header(layout_hash, p0, p1, len(payload))
    return b"".join((before, payload, trailer(zlib.crc32(payload))))


def unseal(layout_hash: str, p0: int, p1: int, blob: bytes | memoryview) -> memoryview:
    """The payload of a blob that must hold exactly [p0, p1) in this layout; KvMismatch says what differs."""
    view = memoryview(blob).cast("B")
    if len(view) < HEADER_BYTES + TRAILER_BYTES:
        raise KvMismatch(
            f"KV blob of {len(view)} bytes is too short: its wrapper has {HEADER_BYTES + TRAILER_BYTES} bytes"
        )
    magic, version, reserved, from_p0, to_p1, payload_bytes, layout = _HEADER.unpack_from(view)
    if magic != _MAGIC or reserved != 0:
        raise KvMismatch("KV blob does not start with the header of exported KV: damaged, or something else")
    if version != _VERSION:
        raise KvMismatch(f"KV blob has format version {version}, this build reads version {_VERSION}")
    if layout.hex() != layout_hash:
        raise KvMismatch(
            f"KV blob has layout {layout.hex()[:12]}, this engine has {layout_hash[:12]}: another model, "
            "KV type or build"
        )
    if (from_p0, to_p1) != (p0, p1):
        raise KvMismatch(f"KV blob holds positions [{from_p0}, {to_p1}), wanted [{p0}, {p1})")
    payload = view[HEADER_BYTES:-TRAILER_BYTES]
    (crc,) = _TRAILER.unpack_from(view, len(view) - TRAILER_BYTES)
    if len(payload) != payload_bytes:
        raise KvMismatch(
            f"KV blob is cut short or padded: {len(payload)} payload bytes, header says {payload_bytes}"
        )
    if zlib.crc32(payload) != crc:
        raise KvMismatch(f"KV blob of [{p0}, {p1}) is damaged: checksum differs")
    return payload
