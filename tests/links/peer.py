"""A program for either end of a link: started with the link's command prefix, speaks JSON on stdout.

serve HOST            sink and echo server; prints its port, then one line for each connection that ended
rtt HOST PORT N       N round trips of one byte over one connection; prints them in ms
payloads HOST PORT BYTES  three payloads over one connection, each acknowledged; prints the seconds of each
push HOST PORT BYTES  sends BYTES, half-closes, waits for the count; prints {"bytes", "seconds"}

Blocking sockets and threads: what an event loop adds to a round trip would be taken for the link's.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import runpy
import socket
import sys
import threading
import time
from pathlib import Path

PIECE = 65536


def say(**fields):
    print(json.dumps(fields), flush=True)


def attend(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        try:
            kind = connection.recv(1)
            if kind == b"p":
                while size := connection.recv(8, socket.MSG_WAITALL):
                    left = int.from_bytes(size)
                    while left:
                        left -= len(connection.recv(min(left, PIECE)))
                    connection.sendall(b"k")
            elif kind == b"e":
                while data := connection.recv(PIECE):
                    connection.sendall(data)
            else:
                count, digest = 0, hashlib.sha256()
                while data := connection.recv(PIECE):
                    count += len(data)
                    digest.update(data)
                connection.sendall(
                    json.dumps({"bytes": count, "digest": digest.hexdigest()}).encode() + b"\n"
                )
            say(ended="eof")
        except ConnectionError as error:
            say(ended=type(error).__name__)


def serve(host):
    def accept():
        while True:
            connection, _ = server.accept()
            threading.Thread(target=attend, args=(connection,), daemon=True).start()

    server = socket.create_server((host, 0))
    say(port=server.getsockname()[1])
    threading.Thread(target=accept, daemon=True).start()
    # Ends with its standard input, so that a killed test leaves no server.
    sys.stdin.read()


def rtt(host, port, count):
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"e")
        taken = []
        for _ in range(count):
            start = time.perf_counter()
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            taken.append((time.perf_counter() - start) * 1000)
    say(rtt_ms=taken)


def push(host, port, count):
    """At most two megabytes of random bytes, repeated: the order of the pieces matters to the digest."""
    block = random.Random(count).randbytes(min(count, 2_000_003))
    digest = hashlib.sha256()
    with socket.create_connection((host, port)) as connection:
        start = time.perf_counter()
        connection.sendall(b"s")
        left = count
        while left:
            piece = block[: min(left, len(block))]
            digest.update(piece)
            connection.sendall(piece)
            left -= len(piece)
        connection.shutdown(socket.SHUT_WR)
        answer = json.loads(connection.makefile("rb").readline())
        seconds = time.perf_counter() - start
    assert answer == {"bytes": count, "digest": digest.hexdigest()}, answer
    say(bytes=count, seconds=seconds)


# The link is measured, not what else the machine has to do.
os.setsid()
# By its path: the package would be loaded at the start of every peer.
runpy.run_path(str(Path(__file__).parents[2] / "adapters/links/precedence.py"))["take_precedence"](
    os.getpid()
)


def payloads(host, port, count):
    data = count.to_bytes(8) + random.Random(count).randbytes(count)
    taken = []
    with socket.create_connection((host, port)) as connection:
        connection.sendall(b"p")
        for _ in range(3):
            start = time.perf_counter()
            connection.sendall(data)
            assert connection.recv(1) == b"k"
            taken.append(time.perf_counter() - start)
    say(seconds=taken)


verb, host, *numbers = sys.argv[1:]
{"serve": serve, "rtt": rtt, "push": push, "payloads": payloads}[verb](host, *map(int, numbers))
