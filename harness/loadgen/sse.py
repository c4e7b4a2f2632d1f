"""Server-sent events out of a byte stream, split anywhere. No I/O, no clock.

Source: WHATWG HTML, section 9.2 (event stream interpretation). Only `data` matters to a
benchmark: comments, ids, retry times and event names are dropped.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 16 << 20


class SseError(ValueError):
    """The stream is not one of events that we are willing to hold."""


class SseSplitter:
    """Feed bytes, get the `data` payloads of the events that those bytes completed."""

    __slots__ = ("_crlf", "_data", "_pending", "_started")

    def __init__(self) -> None:
        self._pending = b""  # an unfinished line, or lines
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._crlf = False  # the last line ended with CR: a LF right after it belongs to it
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads that `chunk` completed, lines joined by LF; raises SseError beyond MAX_EVENT_BYTES."""
        # Nearly every chunk is one event of one data line: pay for the general case only when it comes.
        if (
            not self._pending
            and not self._data
            and chunk.startswith(b"data: ")
            and chunk.endswith(b"\n\n")
            and chunk.find(b"\n") == len(chunk) - 2
            and b"\r" not in chunk
        ):
            self._crlf = False
            self._started = True
            return [chunk[6:-2]]
        return self._feed_lines(chunk)

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        if self._crlf and chunk:
            self._crlf = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        buffer = self._pending + chunk
        if not self._started and buffer:
            if b"\xef\xbb\xbf".startswith(buffer):  # perhaps the first bytes of a byte order mark
                self._pending = buffer
                return []
            buffer = buffer.removeprefix(b"\xef\xbb\xbf")
            self._started = True
        if buffer.endswith(b"\r"):
            self._crlf = True
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = buffer.split(b"\n")
        self._pending = lines.pop()
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                data.append(b"")
        if len(self._pending) > MAX_EVENT_BYTES or sum(map(len, data)) > MAX_EVENT_BYTES:
            raise SseError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return events

    @property
    def unfinished(self) -> bool:
        """Whether bytes of an event without its end are held (a stream that stops here was cut)."""
        return bool(self._pending or self._data)
