"""The calibrated server: streams tokens with a known TTFT and ITL, and knows when it really sent each.

A process of its own (`python -m harness.loadgen.calibrated --ttft-ms 200 --itl-ms 50`) on one epoll loop
without any framework, so that it is faster than any client it has to judge. It prints its port, speaks
the router's dialect, and answers `GET /records` with what it did, on the epoch clock.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import socket
import sys
import time
import zlib
from collections import deque
from typing import Any, Final

import httptools
import msgspec

from harness.clock import take_anchor
from harness.loadgen.client import raise_file_limit
from harness.loadgen.stamps import ANCILLARY_BYTES, SO_TIMESTAMPNS, SOL_SOCKET, unpack_timespec
from harness.loadgen.timerfd import TimerFd

FIRST_ID: Final = 1000
IDS: Final = 40_000
_READ_BYTES: Final = 65536
_MAX_TOKENS: Final = re.compile(rb'"max_tokens":\s*(\d+)')
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class ServedRequest(msgspec.Struct):
    """One request as the server knows it; instants in epoch ns."""

    request_id: str
    received_ns: int  # kernel's receive time of its last byte
    sends_ns: list[int]  # just before each token was handed to the kernel


def first_id(request_id: str) -> int:
    """Token `i` of the answer to `request_id` is `first_id + i`, modulo the vocabulary."""
    return zlib.crc32(request_id.encode()) % IDS


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Stream:
    """One client connection and the answer in progress on it."""

    __slots__ = (
        "answering", "base", "body", "due_ns", "index", "parser", "prompt_tokens", "received_ns",
        "request_id", "sends", "server", "sock", "tokens", "url",
    )  # fmt: skip

    def __init__(self, server: CalibratedServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.parser: Any = httptools.HttpRequestParser(self)
        self.received_ns = 0
        self.due_ns = 0  # next token, monotonic
        self.index = 0
        self._clear()

    def _clear(self) -> None:
        self.request_id = ""
        self.url = b""
        self.body = b""

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self.request_id = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body = self.body + body if self.body else body

    def on_message_complete(self) -> None:
        if self.url == b"/records":
            self.server.tell_records(self.sock)
        else:
            found = _MAX_TOKENS.search(self.body)
            self.tokens = int(found[1]) if found else 16
            self.prompt_tokens = self.body.count(b",", self.body.find(b'"prompt":')) + 1
            self.index = 0
            self.answering = self.request_id or self.server.next_name()
            self.base = first_id(self.answering)
            self.sends: list[int] = []
            self.server.begin(self)
        self._clear()


class CalibratedServer:
    """Answers every POST with `max_tokens` tokens: the first after `ttft_ns`, then one every `itl_ns`."""

    def __init__(self, host: str, port: int, ttft_ns: int, itl_ns: int) -> None:
        raise_file_limit()
        self._anchor: Final = take_anchor()
        self._ttft_ns: Final = ttft_ns
        self._itl_ns: Final = itl_ns
        self._listener: Final = socket.create_server((host, port), backlog=4096)
        self._listener.setblocking(False)
        self.port: Final[int] = self._listener.getsockname()[1]
        self._epoll: Final = select.epoll()
        self._timer: Final = TimerFd()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._timer.fd, select.EPOLLIN)
        self._streams: dict[int, _Stream] = {}
        # Both delays are constant, so each queue is in order of its due instants by itself.
        self._firsts: deque[_Stream] = deque()
        self._nexts: deque[_Stream] = deque()
        self._records: list[ServedRequest] = []
        self._stopping = False
        self._unnamed = 0

    def stop(self, *_: object) -> None:
        self._stopping = True
        self._timer.arm(time.monotonic_ns())

    def serve(self) -> None:
        """Until `stop`."""
        clock = time.monotonic_ns
        listener_fd = self._listener.fileno()
        while not self._stopping:
            due_ns = self._next_due()
            now = clock()
            if due_ns and due_ns <= now:
                self._send_due(now)
                timeout = 0.0
            else:
                self._timer.arm(due_ns)
                timeout = -1.0
            for fd, _ in self._epoll.poll(timeout, 64):
                if fd == listener_fd:
                    self._accept()
                elif fd != self._timer.fd:
                    self._read(self._streams[fd])

    def next_name(self) -> str:
        """For a request of a client that names none."""
        self._unnamed += 1
        return f"#{self._unnamed}"

    def begin(self, stream: _Stream) -> None:
        stream.due_ns = stream.received_ns - self._anchor.offset_ns + self._ttft_ns
        self._firsts.append(stream)
        self._push(stream, _HEAD)

    def tell_records(self, sock: socket.socket) -> None:
        body = msgspec.msgpack.encode(self._records)
        self._records = []
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/msgpack\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        sock.setblocking(True)
        sock.sendall(head + body)
        sock.setblocking(False)

    def _next_due(self) -> int:
        due_ns = self._firsts[0].due_ns if self._firsts else 0
        if self._nexts and (not due_ns or self._nexts[0].due_ns < due_ns):
            due_ns = self._nexts[0].due_ns
        return due_ns

    def _send_due(self, now: int) -> None:
        nexts = self._nexts
        for queue in (self._firsts, nexts):
            for _ in range(64):  # then look for requests again
                if not queue or queue[0].due_ns > now:
                    break
                stream = queue.popleft()
                if self._send_token(stream):
                    stream.due_ns += self._itl_ns
                    nexts.append(stream)

    def _send_token(self, stream: _Stream) -> bool:
        """Send one token; returns whether another follows."""
        index = stream.index
        token = FIRST_ID + (stream.base + index) % IDS
        last = index + 1 == stream.tokens
        event = b'data: {"choices":[{"index":0,"text":"t%d ","token_ids":[%d],"finish_reason":%b}]}\n\n' % (
            token,
            token,
            b'"length"' if last else b"null",
        )
        data = _chunk(event)
        if last:
            usage = b'{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}' % (
                stream.prompt_tokens,
                stream.tokens,
            )
            data += _chunk(b"data: " + usage + b"\n\ndata: [DONE]\n\n") + b"0\r\n\r\n"
        stream.index = index + 1
        stream.sends.append(time.monotonic_ns() + self._anchor.offset_ns)
        if not self._push(stream, data):
            return False
        if last:
            self._records.append(ServedRequest(stream.answering, stream.received_ns, stream.sends))
        return not last

    def _push(self, stream: _Stream, data: bytes) -> bool:
        try:
            sent = stream.sock.send(data)
        except OSError:
            self._drop(stream)
            return False
        if sent < len(data):
            # A client that does not read 200 kB of tokens is broken; waiting for it would falsify the others.
            self._drop(stream)
            return False
        return True

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)
                self._streams[sock.fileno()] = _Stream(self, sock)
                self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, stream: _Stream) -> None:
        try:
            data, ancillary, _, _ = stream.sock.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._drop(stream)
            return
        if ancillary:
            seconds, nanoseconds = unpack_timespec(ancillary[0][2])
            stream.received_ns = seconds * 1_000_000_000 + nanoseconds
        else:
            stream.received_ns = time.monotonic_ns() + self._anchor.offset_ns
        try:
            stream.parser.feed_data(data)
        except httptools.HttpParserError:
            self._drop(stream)

    def _drop(self, stream: _Stream) -> None:
        fd = stream.sock.fileno()
        if fd < 0:
            return
        del self._streams[fd]
        self._epoll.unregister(fd)
        stream.sock.close()
        stream.parser = None
        stream.tokens = 0
        for queue in (self._firsts, self._nexts):
            with contextlib.suppress(ValueError):
                queue.remove(stream)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.loadgen.calibrated", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=200.0)
    parser.add_argument("--itl-ms", type=float, default=50.0)
    parser.add_argument("--cpu", type=int, help="run on this core only")
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    server = CalibratedServer(
        options.host, options.port, round(options.ttft_ms * 1e6), round(options.itl_ms * 1e6)
    )
    signal.signal(signal.SIGTERM, server.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
