"""One request and its response, as far as the wire is concerned: when what happened, and the raw events."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from harness.loadgen.reply import Reply, ReplyError, error_text
from harness.loadgen.sse import SseError, SseSplitter

ABSORB_EVENTS: Final = 256  # long answers are interpreted in pieces, so that none stalls the loop at its end
MAX_ERROR_BYTES: Final = 4096


class Status(StrEnum):
    """How a request ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNFINISHED = "unfinished"


class Exchange:
    """Made by the replay, filled by the connection, handed to `on_end` once.

    All instants are monotonic ns. `sent_ns` is taken just before the first byte is handed to the kernel
    on an open connection; opening it is `connect_ns`, apart (None when the connection was reused).
    """

    __slots__ = (
        "_body",
        "_splitter",
        "cancel_tokens",
        "connect_ns",
        "content_type",
        "end_ns",
        "error",
        "first_byte_ns",
        "http_status",
        "kernel",
        "on_end",
        "payloads",
        "reply",
        "request",
        "retries",
        "sent_ns",
        "stamps",
        "status",
        "streaming",
    )

    def __init__(
        self,
        request: tuple[bytes, bytes],
        on_end: Callable[[Exchange], None],
        *,
        cancel_tokens: int | None = None,
    ) -> None:
        self.request = request  # head and body
        self.on_end = on_end
        self.cancel_tokens = cancel_tokens
        self.retries = 0
        self.sent_ns: int | None = None
        self.connect_ns: int | None = None
        self.end_ns = 0
        self.status: Status | None = None
        self.error: str | None = None
        self.kernel = True
        self._reset_response()

    def _reset_response(self) -> None:
        self.first_byte_ns: int | None = None
        self.http_status: int | None = None
        self.content_type = ""
        self.streaming = False
        self.reply = Reply()
        self.payloads: list[bytes] = []
        self.stamps: list[int] = []
        self._splitter = SseSplitter()
        self._body = b""

    def try_again(self) -> None:
        """Forget the failed attempt's response; the send time stays the first attempt's."""
        self.retries += 1
        self._reset_response()

    def headers_complete(self, http_status: int) -> None:
        self.http_status = http_status
        self.streaming = http_status == 200 and self.content_type.startswith("text/event-stream")

    def take_body(self, body: bytes, stamp_ns: int) -> int:
        """Split `body` received at `stamp_ns`; returns the number of events it completed.

        Raises SseError or ReplyError.
        """
        if not self.streaming:
            if len(self._body) < MAX_ERROR_BYTES:
                self._body += body
            return 0
        events = self._splitter.feed(body)
        stamps = self.stamps
        if len(events) == 1:
            self.payloads.append(events[0])
            stamps.append(stamp_ns)
        else:
            self.payloads += events
            stamps += [stamp_ns] * len(events)
        if len(stamps) >= ABSORB_EVENTS or (events and self.cancel_tokens is not None):
            self.absorb()
        return len(events)

    def absorb(self) -> None:
        """Interpret what has come so far. Raises ReplyError."""
        if self.stamps:
            payloads, stamps = self.payloads, self.stamps
            self.payloads, self.stamps = [], []
            self.reply.absorb(payloads, stamps)

    @property
    def enough(self) -> bool:
        """Whether the plan is to give up now."""
        return self.cancel_tokens is not None and len(self.reply.token_stamps) >= self.cancel_tokens

    def complete(self, stamp_ns: int) -> None:
        """The response is over as far as HTTP goes: judge it."""
        if self.http_status != 200:
            self.end(Status.ERROR, stamp_ns, f"HTTP {self.http_status}: {self._error_body()}")
        elif not self.streaming:
            kind = self.content_type or "no content type"
            self.end(Status.ERROR, stamp_ns, f"expected text/event-stream, got {kind}: {self._error_body()}")
        else:
            try:
                self.absorb()
            except ReplyError as error:
                self.end(Status.ERROR, stamp_ns, f"in the stream: {error}")
                return
            reply = self.reply
            if reply.done or (reply.finish_reason is not None and not self._splitter.unfinished):
                self.end(Status.OK, stamp_ns)
            else:
                self.end(Status.ERROR, stamp_ns, f"stream ended early, after {reply.output_tokens} tokens")

    def end(self, status: Status, at_ns: int, error: str | None = None) -> None:
        """Settle the exchange; a second call is ignored (a socket may fail while being given up)."""
        if self.status is not None:
            return
        try:
            self.absorb()
        except ReplyError as problem:
            # The first thing that went wrong is the one to tell.
            error = error or f"in the stream: {problem}"
        self.status = status
        self.error = error
        self.end_ns = at_ns
        self.payloads = []
        self.stamps = []
        self.request = (b"", b"")
        self.on_end(self)

    def _error_body(self) -> str:
        try:
            body = msgspec.json.decode(self._body)
        except msgspec.DecodeError:
            return error_text(self._body[:500].decode("utf-8", "replace"))
        return error_text(body.get("error", body) if isinstance(body, dict) else body)


STREAM_FAULTS: Final = (SseError, ReplyError)
