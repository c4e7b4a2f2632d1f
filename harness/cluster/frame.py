"""Frames between router and workers: length-checked, checksummed, versioned, bounded; never pickled.

    magic 'PDDF' | version u16 | reserved u16 | head bytes u32 | body bytes u32 | crc32 u32 | head | body

The head is msgpack of one tagged message, the body raw bytes (token ids, KV). The checksum covers both.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Final

VERSION: Final = 1
MAX_HEAD_BYTES: Final = 1 << 20
MAX_BODY_BYTES: Final = 64 << 20
MAX_FRAME_BYTES: Final = MAX_HEAD_BYTES + MAX_BODY_BYTES + 64

_MAGIC: Final = b"PDDF"
_HEADER: Final = struct.Struct("!4sHHIII")


class FrameError(Exception):
    """A frame that must not be believed. One line: what is wrong with it."""


def pack(head: bytes, body: bytes | memoryview = b"") -> bytes:
    """One frame. Raises FrameError when a part exceeds its bound."""
    if len(head) > MAX_HEAD_BYTES or len(body) > MAX_BODY_BYTES:
        raise FrameError(
            f"frame of {len(head)} + {len(body)} bytes; at most {MAX_HEAD_BYTES} + {MAX_BODY_BYTES} go in one"
        )
    crc = zlib.crc32(body, zlib.crc32(head))
    return b"".join((_HEADER.pack(_MAGIC, VERSION, 0, len(head), len(body), crc), head, body))


def unpack(frame: bytes) -> tuple[bytes, memoryview]:
    """Head and body of a frame. Raises FrameError for anything but exactly one whole, intact frame."""
    if len(frame) < _HEADER.size:
        raise FrameError(f"frame of {len(frame)} bytes; the header alone takes {_HEADER.size}")
    magic, version, _, head_bytes, body_bytes, crc = _HEADER.unpack_from(frame)
    if magic != _MAGIC:
        raise FrameError(f"frame begins with {magic!r}, not {_MAGIC!r}")
    if version != VERSION:
        raise FrameError(f"frame of protocol version {version}; this side speaks {VERSION}")
    if len(frame) != _HEADER.size + head_bytes + body_bytes:
        raise FrameError(f"frame of {len(frame)} bytes announces {_HEADER.size + head_bytes + body_bytes}")
    view = memoryview(frame)
    head = bytes(view[_HEADER.size : _HEADER.size + head_bytes])
    body = view[_HEADER.size + head_bytes :]
    if zlib.crc32(body, zlib.crc32(head)) != crc:
        raise FrameError("frame's checksum does not match: damaged on the way")
    return head, body


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian u32."""
    return array("I", ids).tobytes()


def unpack_ids(body: bytes | memoryview) -> array[int]:
    """Inverse of `pack_ids`. Raises FrameError when the size is no multiple of four."""
    ids = array("I")
    if len(body) % ids.itemsize:
        raise FrameError(f"token ids of {len(body)} bytes; ids take {ids.itemsize} each")
    ids.frombytes(bytes(body))
    return ids
