"""Numbered datagrams one way: `sink HOST COUNT INTERVAL_MS` in B, `source …` in A once its input ends."""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import time
from pathlib import Path

PORT = 9000
TEXT = b"payload" * 10


def sink(host, count, interval_ms):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        receiver.bind((host, PORT))
        print("ready", flush=True)
        receiver.settimeout(30)
        arrived = []
        try:
            while True:
                data = receiver.recv(2048)
                if data == b"end":
                    break
                now = time.monotonic_ns()
                number, sent_ns = int.from_bytes(data[:4]), int.from_bytes(data[4:12])
                arrived.append((number, (now - sent_ns) / 1e6, data[12:] == TEXT))
                receiver.settimeout(3)
        except TimeoutError:
            pass
    print(json.dumps(arrived))


def source(host, count, interval_ms):
    sys.stdin.read()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((host, PORT))
        start = time.monotonic()
        for number in range(count):
            time.sleep(max(0, start + number * interval_ms / 1000 - time.monotonic()))
            sender.send(number.to_bytes(4) + time.monotonic_ns().to_bytes(8) + TEXT)


# The link is measured, not what else the machine has to do.
os.setsid()
# By its path: the package would be loaded at the start of every peer.
runpy.run_path(str(Path(__file__).parents[2] / "adapters/links/precedence.py"))["take_precedence"](
    os.getpid()
)
verb, host, count, interval_ms = sys.argv[1:]
{"sink": sink, "source": source}[verb](host, int(count), float(interval_ms))
