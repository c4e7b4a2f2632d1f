"""An HTTP server whose every answer a test writes itself, byte for byte. One thread per connection."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Request:
    """What arrived; `reply` sends raw bytes, `close` ends the connection."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict
    raw_body: bytes
    sock: socket.socket
    connection: int

    def reply(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


def chunked(*parts: bytes, end: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return body + (b"0\r\n\r\n" if end else b"")


def event(payload: object) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return f"data: {text}\n\n".encode()


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def tokens_answer(ids: list[int], *, cached: int | None = None, prompt_tokens: int = 0) -> bytes:
    """A whole answer, one event a token."""
    events = [event({"choices": [{"index": 0, "text": f"t{i} ", "token_ids": [i]}]}) for i in ids]
    usage: dict = {"prompt_tokens": prompt_tokens, "completion_tokens": len(ids)}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return STREAM_HEAD + chunked(*events, event({"choices": [], "usage": usage}), event("[DONE]"))


@dataclass
class ScriptedServer:
    answer: Callable[[Request], None]
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connections: int = 0

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.open: list[socket.socket] = []
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.open.append(sock)
                self._connections += 1
                number = self._connections
            thread = threading.Thread(target=self._serve, args=(sock, number), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        if self.tls is not None:
            try:
                sock = self.tls.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                return
        with contextlib.suppress(OSError), contextlib.closing(sock):
            buffer = b""
            while True:
                while b"\r\n\r\n" not in buffer:
                    data = sock.recv(65536)
                    if not data:
                        return
                    buffer += data
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                headers = {
                    k.lower(): v for k, v in (re.split(r":\s*", line, maxsplit=1) for line in lines[1:])
                }
                length = int(headers.get("content-length", 0))
                while len(buffer) < length:
                    buffer += sock.recv(65536)
                raw, buffer = buffer[:length], buffer[length:]
                with self._lock:
                    request = Request(
                        len(self.requests),
                        lines[0].split(" ")[1],
                        headers,
                        json.loads(raw or b"{}"),
                        raw,
                        sock,
                        connection,
                    )
                    self.requests.append(request)
                self.answer(request)

    @property
    def connections(self) -> int:
        return self._connections

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join(5)
        self.listener.close()
        for sock in self.open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(5)


@contextlib.contextmanager
def serving(answer: Callable[[Request], None], tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    server = ScriptedServer(answer, tls)
    try:
        yield server
    finally:
        server.close()
