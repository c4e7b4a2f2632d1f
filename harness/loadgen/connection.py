"""One HTTP/1.1 connection on a raw non-blocking socket: connect, TLS, send, stamped reads into llhttp."""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import httptools
from httptools import HttpParserError

from harness.loadgen.exchange import STREAM_FAULTS, Exchange, Status
from harness.loadgen.reactor import WRITE, Timer, now_ns
from harness.loadgen.stamps import ANCILLARY_BYTES, unpack_timespec

if TYPE_CHECKING:
    from harness.loadgen.client import Client

READ_BYTES: Final = (
    4096  # an event has some 150 bytes; a larger buffer costs a microsecond a read to allocate
)
LATE_READ_NS: Final = 1_000_000  # events that merged in a read later than this merged because of us
_IN_PROGRESS: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY)
_WANT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """Carries one exchange at a time. Used by the client alone; tells it when it is free or gone."""

    __slots__ = (
        "_client",
        "_complete",
        "_connect_timer",
        "_connecting",
        "_fd",
        "_keep_alive",
        "_offset_of",
        "_parser",
        "_recvmsg",
        "_sized",
        "_sock",
        "_stamp_ns",
        "_started_ns",
        "_tls",
        "_tls_in",
        "_tls_out",
        "_unsent",
        "connect_ns",
        "exchange",
    )

    def __init__(self, client: Client, exchange: Exchange) -> None:
        """Start to connect for `exchange`. Raises OSError when the socket cannot even be made."""
        self._client = client
        self._offset_of = client.clock
        self.exchange: Exchange | None = exchange
        self._started_ns = now_ns()
        self.connect_ns: int | None = None
        self._connecting = True
        self._complete = False
        self._keep_alive = False
        self._sized = False
        self._stamp_ns = 0
        self._unsent: list[memoryview] = []
        self._parser: Any = None
        self._tls: ssl.SSLObject | None = None
        sock = _socket.socket(
            client.family, socket.SOCK_STREAM
        )  # not gevent's: it never blocks and never waits
        self._sock: Any = sock
        self._fd = sock.fileno()
        self._recvmsg: Any = sock.recvmsg
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.clock.watch(sock)
            _begin_to_connect(sock, client.sockaddr)
        except OSError:
            sock.close()
            raise
        client.reactor.watch(self._fd, self._on_ready)
        client.reactor.want_write(self._fd, wanted=True)
        self._connect_timer: Timer | None = client.reactor.call_at(
            self._started_ns + client.connect_limit_ns, self._connect_late
        )

    # -- opening ---------------------------------------------------------------------------------------

    def _connect_late(self) -> None:
        self._fail(f"no connection within {self._client.connect_limit_ns / 1e9:g} s", Status.TIMEOUT)

    def _on_connected(self) -> None:
        problem = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            self._fail(f"connect: {os.strerror(problem)}")
            return
        self._client.reactor.want_write(self._fd, wanted=False)
        context = self._client.tls_context
        if context is None:
            self._opened()
            return
        self._connecting = False
        self._tls_in = ssl.MemoryBIO()
        self._tls_out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._tls_in, self._tls_out, server_hostname=self._client.server_name)
        self._handshake()

    def _handshake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except _WANT:
            self._flush_tls()
        except ssl.SSLError as error:
            self._flush_tls()
            self._fail(f"TLS: {error.reason or error}")
        else:
            self._flush_tls()
            self._opened()

    def _opened(self) -> None:
        self._connecting = False
        if self._connect_timer is not None:
            self._connect_timer.cancel()
            self._connect_timer = None
        self._parser = httptools.HttpResponseParser(self)
        self.connect_ns = now_ns() - self._started_ns
        if self.exchange is not None:
            self.exchange.connect_ns = self.connect_ns
            self._write()

    # -- sending ---------------------------------------------------------------------------------------

    def send(self, exchange: Exchange) -> None:
        """Carry `exchange` on this open and idle connection."""
        self.exchange = exchange
        self._write()

    def _write(self) -> None:
        exchange = self.exchange
        assert exchange is not None
        self._complete = False
        buffers = exchange.request
        if self._tls is not None:
            for buffer in buffers:
                self._tls.write(buffer)
            buffers = (self._tls_out.read(), b"")
        if exchange.sent_ns is None:
            exchange.sent_ns = now_ns()
        if self._unsent:  # the end of the handshake is still waiting for room
            self._unsent += map(memoryview, buffers)
            return
        try:
            sent = self._sock.sendmsg(buffers)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail(f"send: {error.strerror}")
            return
        if sent < len(buffers[0]) + len(buffers[1]):
            self._unsent = [memoryview(b"".join(buffers))[sent:]]
            self._client.reactor.want_write(self._fd, wanted=True)

    def _flush_tls(self) -> None:
        data = self._tls_out.read()
        if data:
            self._unsent.append(memoryview(data))
            self._write_more()

    def _write_more(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent[0])
            except BlockingIOError:
                self._client.reactor.want_write(self._fd, wanted=True)
                return
            except OSError as error:
                self._fail(f"send: {error.strerror}")
                return
            if sent == len(self._unsent[0]):
                del self._unsent[0]
            else:
                self._unsent[0] = self._unsent[0][sent:]
        self._client.reactor.want_write(self._fd, wanted=False)

    # -- receiving -------------------------------------------------------------------------------------

    def _on_ready(self, mask: int) -> None:
        if mask & WRITE or self._connecting:
            if self._connecting:
                self._on_connected()
                return
            self._write_more()
            if self._sock is None:
                return
            if mask == WRITE:
                return
        try:
            data, ancillary, _, _ = self._recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"receive: {error.strerror}")
            return
        exchange = self.exchange
        if ancillary:
            seconds, nanoseconds = unpack_timespec(ancillary[0][2])
            self._stamp_ns = seconds * 1_000_000_000 + nanoseconds - self._offset_of.offset_ns
        else:
            self._stamp_ns = now_ns()
            if exchange is not None and data:
                exchange.kernel = False
        if not data:
            self._on_eof()
        elif self._tls is not None:
            self._on_ciphertext(data)
        elif exchange is None:
            self._gone()  # an idle connection on which something arrives cannot be used any more
        else:
            self._feed(exchange, data)

    def _on_ciphertext(self, data: bytes) -> None:
        assert self._tls is not None
        self._tls_in.write(data)
        if self._parser is None:
            self._handshake()
        while self._parser is not None and self._sock is not None:
            try:
                plain = self._tls.read(READ_BYTES)
            except _WANT:
                break
            except ssl.SSLError as error:
                self._fail(f"TLS: {error.reason or error}")
                return
            if not plain:
                self._on_eof()
            elif self.exchange is not None:
                self._feed(self.exchange, plain)
            else:
                self._gone()
        if self._sock is not None:
            self._flush_tls()

    def _feed(self, exchange: Exchange, data: bytes) -> None:
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = self._stamp_ns
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            fault = error.__context__
            self._fail(
                f"in the stream: {fault}" if isinstance(fault, STREAM_FAULTS) else f"bad HTTP: {error}"
            )
            return
        if self._complete:
            self._on_complete(exchange)
        elif exchange.cancel_tokens is not None and exchange.enough:
            self._fail(None, Status.CANCELLED)

    # httptools calls these; an exception raised in one comes out of feed_data as HttpParserError.

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type" and self.exchange is not None:
            self.exchange.content_type = value.decode("latin-1").strip().lower()
        elif name in {b"content-length", b"transfer-encoding"}:
            self._sized = True

    def on_headers_complete(self) -> None:
        if self.exchange is not None:
            self.exchange.headers_complete(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        if self.exchange is None:
            return
        events = self.exchange.take_body(body, self._stamp_ns)
        self._client.events += events
        if events > 1 and now_ns() - self._stamp_ns > LATE_READ_NS:
            self._client.late_merges += 1

    def on_message_complete(self) -> None:
        # 1xx answers are not the response. The parser forgets whether to keep alive right after this.
        self._complete = self._parser.get_status_code() >= 200
        self._keep_alive = self._parser.should_keep_alive()

    # -- ending ----------------------------------------------------------------------------------------

    def _on_complete(self, exchange: Exchange) -> None:
        reusable = self._keep_alive and not self._unsent and self._client.reuse
        self.exchange = None
        self._sized = False
        if reusable:
            self._client.release(self)
        else:
            self._close()
        self._client.completed(exchange, self._stamp_ns)

    def _on_eof(self) -> None:
        exchange = self.exchange
        if exchange is None:
            self._gone()
        elif exchange.http_status is not None and not self._sized:
            self.exchange = None  # a response that ends with the connection
            self._close()
            self._client.completed(exchange, self._stamp_ns)
        elif exchange.http_status is None:
            self._fail("the server closed the connection without an answer")
        else:
            tokens = _tokens_so_far(exchange)
            self._fail(f"the server closed the connection in the middle of the answer, after {tokens} tokens")

    def _gone(self) -> None:
        self._client.discard(self)
        self._close()

    def _fail(self, error: str | None, status: Status = Status.ERROR) -> None:
        exchange, self.exchange = self.exchange, None
        self._client.discard(self)
        self._close()
        if exchange is not None:
            self._client.failed(exchange, status, error)

    def abandon(self, status: Status, error: str | None) -> None:
        """Give the exchange up and close, as an impatient user would."""
        self._fail(error, status)

    def _close(self) -> None:
        if self._sock is None:
            return
        if self._connect_timer is not None:
            self._connect_timer.cancel()
            self._connect_timer = None
        self._client.reactor.unwatch(self._fd)
        self._sock.close()
        self._sock = self._recvmsg = self._parser = self._tls = None
        self._unsent = []

    def close(self) -> None:
        """Close without a word to anybody."""
        self._close()


def _begin_to_connect(sock: _socket.socket, sockaddr: Any) -> None:
    result = sock.connect_ex(sockaddr)
    if result and result not in _IN_PROGRESS:
        raise OSError(result, os.strerror(result))


def _tokens_so_far(exchange: Exchange) -> int:
    with contextlib.suppress(*STREAM_FAULTS):
        exchange.absorb()
    return exchange.reply.output_tokens
