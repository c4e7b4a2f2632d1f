"""The load generator's end of the recorder: starts it, feeds it without ever waiting for it, ends it."""

from __future__ import annotations

import _socket
import contextlib
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from gevent import monkey, subprocess

from harness.loadgen.frames import (
    Answer,
    Closing,
    Frame,
    FrameSplitter,
    Opening,
    Ready,
    Recorded,
    encode_frame,
)
from harness.loadgen.reactor import WRITE, Reactor

if TYPE_CHECKING:
    from harness.loadgen.reactor import Handler

MAX_PENDING_BYTES: Final = 128 << 20
_START_S: Final = 60.0
_STALL_S: Final = 30.0
_FINISH_S: Final = 120.0
_PIPE_BYTES: Final = 4 << 20
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


class RecordingLostError(RuntimeError):
    """The rows cannot be recorded any more; what was recorded before stays."""


class Recording:
    """A recorder process and the rows on their way to it."""

    def __init__(self, opening: Opening) -> None:
        ours, theirs = _socket_pair()
        self._process: Final = subprocess.Popen(
            [sys.executable, "-m", "harness.loadgen.recorder", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._pipe: Final = ours
        self._pending: deque[memoryview] = deque()
        self._pending_bytes = 0
        self._reactor: Reactor | None = None
        self._writing = False
        self._answers = FrameSplitter()
        self._ready = False
        self._recorded: Recorded | None = None
        self.write(opening)

    def wait_ready(self) -> None:
        """Its imports are done and its tables open. Raises RecordingLostError when that fails."""
        while not self._ready:
            while self._pending:
                self._wait(_START_S)
            if not select_ready(self._pipe, writing=False, timeout_s=_START_S):
                raise RecordingLostError(f"the recorder did not start within {_START_S:g} s")
            self._read()

    def attach(self, reactor: Reactor) -> None:
        """From now on the reactor writes what the pipe had no room for."""
        self._reactor = reactor
        handler: Handler = self._on_ready
        reactor.watch(self._pipe.fileno(), handler)
        self._flush()

    def write(self, frame: Frame) -> None:
        """Take a row. Waits only when MAX_PENDING_BYTES are pending; the instrument sees that as lag."""
        data = memoryview(encode_frame(frame))
        self._pending.append(data)
        self._pending_bytes += len(data)
        if not self._writing:
            self._flush()
        if self._pending_bytes > MAX_PENDING_BYTES:
            self._wait(_STALL_S)

    def close(self) -> Recorded:
        """Everything is on disk when this returns. Raises RecordingLostError when it could not be."""
        if self._reactor is not None:
            self._reactor.unwatch(self._pipe.fileno())
            self._reactor = None
        self.write(Closing())
        while self._pending:
            self._wait(_STALL_S)
        while self._recorded is None:
            if not select_ready(self._pipe, writing=False, timeout_s=_FINISH_S):
                raise RecordingLostError(f"the recorder did not finish within {_FINISH_S:g} s")
            self._read()
        self._process.wait(_FINISH_S)
        self._pipe.close()
        return self._recorded

    def kill(self) -> None:
        """Stop without finishing the shards (they stay readable)."""
        self._pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FINISH_S)

    def _on_ready(self, mask: int) -> None:
        if mask & WRITE:
            self._flush()
        if mask & ~WRITE:
            self._read()

    def _read(self) -> None:
        try:
            data = self._pipe.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            raise RecordingLostError(f"the recorder is gone: {error.strerror}") from None
        if not data and self._recorded is None:
            raise RecordingLostError("the recorder is gone; what it wrote before stays readable")
        for frame in self._answers.feed(data):
            match _ANSWERS.decode(frame):
                case Ready():
                    self._ready = True
                case Recorded() as recorded:
                    self._recorded = recorded
                    if recorded.error is not None:
                        raise RecordingLostError(recorded.error)

    def _flush(self) -> None:
        pending = self._pending
        try:
            while pending:
                sent = self._pipe.send(pending[0])
                self._pending_bytes -= sent
                if sent == len(pending[0]):
                    pending.popleft()
                else:
                    pending[0] = pending[0][sent:]
        except BlockingIOError:
            self._want(wanted=True)
            return
        except OSError:
            self._read()  # it says why before it leaves
            raise RecordingLostError("the recorder is gone; what it wrote before stays readable") from None
        self._want(wanted=False)

    def _want(self, *, wanted: bool) -> None:
        if self._reactor is not None and wanted is not self._writing:
            self._writing = wanted
            self._reactor.want_write(self._pipe.fileno(), wanted=wanted)

    def _wait(self, timeout_s: float) -> None:
        if not select_ready(self._pipe, writing=True, timeout_s=timeout_s):
            raise RecordingLostError(f"the recorder took nothing for {timeout_s:g} s (disk stuck?)")
        self._flush()


def select_ready(sock: Any, *, writing: bool, timeout_s: float) -> bool:
    """Wait for one socket, truly (not gevent's way)."""
    readers, writers = ([], [sock]) if writing else ([sock], [])
    return any(monkey.get_original("select", "select")(readers, writers, [], timeout_s))


def _socket_pair() -> tuple[Any, Any]:
    ours, theirs = _socket.socketpair()
    ours.setblocking(False)
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIPE_BYTES)
    return ours, theirs
