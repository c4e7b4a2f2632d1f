"""KV state of one slot: reading and writing ranges of positions out of llama.cpp's sequence state.

llama.cpp hands out and takes the whole state of one sequence, as

    magic u32 | source sequence u32 | streams u32 | per stream: cells u32, and if there are any
        per cell: position i32 | 1 u32 | sequence i32
        v_transposed u32 | layers u32 | two more u32
        per layer K: type i32 | row bytes u64 | cells x row
        per layer V: type i32 | element bytes u32 | width u32 | width x cells x element     (transposed)

with one stream a slot (non-unified cache). A partial copy between sequences aborts the process there,
and a full one is lazy, so ranges are cut and joined here. The payload that travels is ours: for each
layer the K rows of the range, then for each layer its V columns; no per-cell overhead.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.engine import KvMismatch

Bytes = npt.NDArray[np.uint8]

_HEAD = struct.Struct("<3I")
_COUNT = struct.Struct("<I")
_CELL_BYTES = 12
_EXTRAS = struct.Struct("<4I")
_K_HEAD = struct.Struct("<iQ")
_V_HEAD = struct.Struct("<iII")


class StateError(RuntimeError):
    """llama.cpp's state does not look as described above. One line."""


@dataclass(frozen=True, slots=True)
class StateLayout:
    """What is constant in every state of one context. Row and column sizes in bytes, one per layer."""

    magic: int
    streams: int
    extras: tuple[int, int, int, int]
    k_types: tuple[int, ...]
    k_row_bytes: tuple[int, ...]
    v_types: tuple[int, ...]
    v_element_bytes: tuple[int, ...]
    v_widths: tuple[int, ...]

    @property
    def bytes_per_token(self) -> int:
        v_bytes = (e * w for e, w in zip(self.v_element_bytes, self.v_widths, strict=True))
        return sum(self.k_row_bytes) + sum(v_bytes)

    @property
    def text(self) -> str:
        """What must be equal for KV to move between two contexts."""
        k = f"{self.k_types} {self.k_row_bytes}"
        return f"{self.extras} {k} {self.v_types} {self.v_element_bytes} {self.v_widths}"

    def payload_bytes(self, tokens: int) -> int:
        return tokens * self.bytes_per_token

    def state_bytes(self, tokens: int) -> int:
        """Size of the state of a slot that holds `tokens` positions."""
        heads = len(self.k_types) * (_K_HEAD.size + _V_HEAD.size)
        fixed = _HEAD.size + self.streams * _COUNT.size + _EXTRAS.size + heads
        return fixed + tokens * (_CELL_BYTES + self.bytes_per_token)


def learn_layout(state: bytes) -> StateLayout:
    """The layout, out of the state of a slot that holds one position."""
    try:
        magic, _source, streams = _HEAD.unpack_from(state)
        at = _HEAD.size
        while _COUNT.unpack_from(state, at)[0] == 0:
            at += _COUNT.size
        (cells,) = _COUNT.unpack_from(state, at)
        at += _COUNT.size + cells * _CELL_BYTES
        extras = _EXTRAS.unpack_from(state, at)
        at += _EXTRAS.size
        v_transposed, layers = extras[:2]
        if v_transposed != 1:
            raise StateError("llama.cpp keeps V untransposed; flash attention must be off")
        k: list[tuple[int, int]] = []
        for _ in range(layers):
            kind, row_bytes = _K_HEAD.unpack_from(state, at)
            at += _K_HEAD.size + cells * row_bytes
            k.append((kind, row_bytes))
        v: list[tuple[int, int, int]] = []
        for _ in range(layers):
            kind, element_bytes, width = _V_HEAD.unpack_from(state, at)
            at += _V_HEAD.size + cells * element_bytes * width
            v.append((kind, element_bytes, width))
    except struct.error:
        raise StateError("llama.cpp's sequence state is shorter than its own headers say") from None
    layout = StateLayout(
        magic=magic,
        streams=streams,
        extras=extras,
        k_types=tuple(kind for kind, _ in k),
        k_row_bytes=tuple(row for _, row in k),
        v_types=tuple(kind for kind, _, _ in v),
        v_element_bytes=tuple(element for _, element, _ in v),
        v_widths=tuple(width for _, _, width in v),
    )
    if cells != 1 or layout.state_bytes(1) != len(state):
        raise StateError(
            f"llama.cpp's sequence state has {len(state)} bytes, expected {layout.state_bytes(1)}: "
            "another format"
        )
    return layout


class State:
    """One slot's state in a buffer, with views of its parts."""

    def __init__(self, layout: StateLayout, slot: int, tokens: int) -> None:
        # Not zeroed as a whole: all but the counts is filled in, and fresh zero pages cost more than copying.
        self.buffer: Bytes = np.empty(layout.state_bytes(tokens), np.uint8)
        self.tokens = tokens
        self._layout = layout
        self._slot = slot
        self._cells_at = _HEAD.size + (slot + 1) * _COUNT.size
        self.buffer[: self._cells_at] = 0
        self.buffer[len(self.buffer) - (layout.streams - slot - 1) * _COUNT.size :] = 0

    def write_headers(self) -> None:
        """Fill in everything but K and V, for positions [0, tokens)."""
        layout, slot, n = self._layout, self._slot, self.tokens
        _HEAD.pack_into(self.buffer.data, 0, layout.magic, slot, layout.streams)
        _COUNT.pack_into(self.buffer.data, self._cells_at - _COUNT.size, n)
        cells = self._cells()
        cells[:, 0], cells[:, 1], cells[:, 2] = np.arange(n), 1, slot
        at = self._cells_at + n * _CELL_BYTES
        _EXTRAS.pack_into(self.buffer.data, at, *layout.extras)
        at += _EXTRAS.size
        for kind, row_bytes in zip(layout.k_types, layout.k_row_bytes, strict=True):
            _K_HEAD.pack_into(self.buffer.data, at, kind, row_bytes)
            at += _K_HEAD.size + n * row_bytes
        for kind, element, width in zip(layout.v_types, layout.v_element_bytes, layout.v_widths, strict=True):
            _V_HEAD.pack_into(self.buffer.data, at, kind, element, width)
            at += _V_HEAD.size + n * element * width

    def check_positions(self) -> None:
        """Raise StateError unless the cells are those of positions [0, tokens), in order."""
        (count,) = _COUNT.unpack_from(self.buffer.data, self._cells_at - _COUNT.size)
        if count != self.tokens or not np.array_equal(self._cells()[:, 0], np.arange(self.tokens)):
            raise StateError(f"slot {self._slot} does not hold positions [0, {self.tokens}) in order")

    def parts(self) -> list[tuple[Bytes, int]]:
        """Writable views, (rows, tokens x unit), each with its unit: bytes of one position in one row. K is
        one row of whole K rows, V has a row for each of its columns."""
        layout, n = self._layout, self.tokens
        at = self._cells_at + n * _CELL_BYTES + _EXTRAS.size
        views: list[tuple[Bytes, int]] = []
        for row_bytes in layout.k_row_bytes:
            at += _K_HEAD.size
            views.append((self.buffer[at : at + n * row_bytes].reshape(1, -1), row_bytes))
            at += n * row_bytes
        for element, width in zip(layout.v_element_bytes, layout.v_widths, strict=True):
            at += _V_HEAD.size
            views.append((self.buffer[at : at + n * element * width].reshape(width, -1), element))
            at += n * element * width
        return views

    def cut(self, p0: int, p1: int) -> memoryview:
        """The payload of [p0, p1)."""
        payload: Bytes = np.empty(self._layout.payload_bytes(p1 - p0), np.uint8)
        at = 0
        for part, unit in self.parts():
            source = part[:, p0 * unit : p1 * unit]
            payload[at : at + source.size].reshape(source.shape)[:] = source
            at += source.size
        return payload.data

    def put(self, p0: int, p1: int, payload: memoryview) -> None:
        """Set the K and V of [p0, p1) to a payload."""
        wanted = self._layout.payload_bytes(p1 - p0)
        if len(payload) != wanted:
            raise KvMismatch(f"KV payload of [{p0}, {p1}) has {len(payload)} bytes, expected {wanted}")
        source = np.frombuffer(payload, np.uint8)
        at = 0
        for part, unit in self.parts():
            target = part[:, p0 * unit : p1 * unit]
            target[:] = source[at : at + target.size].reshape(target.shape)
            at += target.size

    def put_before(self, p0: int, other: State) -> None:
        """Set the K and V of [0, p0) to those of another state of the same layout."""
        for (target, unit), (source, _) in zip(self.parts(), other.parts(), strict=True):
            target[:, : p0 * unit] = source[:, : p0 * unit]

    def _cells(self) -> npt.NDArray[np.int32]:
        return (
            self.buffer[self._cells_at : self._cells_at + self.tokens * _CELL_BYTES]
            .view("<i4")
            .reshape(-1, 3)
        )
