"""KV from worker to worker against the same bytes over plain TCP, on loopback between two processes.

    python benchmarks/kv_transfer.py --engine llamacpp
    .venv-vllm/bin/python benchmarks/kv_transfer.py --engine vllm --transport tcp --transport nixl

One transfer is what the policy's `Transfer` does: export at the sender, the way across, checksum and joining
at the receiver. The ways take turns, round by round, so that what else runs on the machine strikes all alike.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import click
import msgspec

from harness.cluster import messages as msg
from harness.cluster.frame import pack_ids
from harness.cluster.worker import WorkerConfig
from harness.engine import EngineInfo, EngineOptions
from harness.experiment.processes.child import Child
from harness.experiment.processes.worker import WorkerProcess
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.roles import TransferPurpose

_START_S = 400.0
_WAIT_S = 120.0
_SINK = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
plug, _ = server.accept()
buffer = bytearray(1 << 20)
while True:
    left = int.from_bytes(plug.recv(8, socket.MSG_WAITALL), "big")
    if not left:
        break
    while left:
        left -= plug.recv_into(buffer, min(left, len(buffer)))
    plug.sendall(b"!")
"""


class PlainTcp:
    """A sink in a process of its own."""

    def __init__(self) -> None:
        self._sink = subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True)
        assert self._sink.stdout is not None
        self._plug = socket.create_connection(("127.0.0.1", int(self._sink.stdout.readline())))

    def send_s(self, blob: bytes) -> float:
        began_s = time.perf_counter()
        self._plug.sendall(len(blob).to_bytes(8, "big"))
        self._plug.sendall(blob)
        self._plug.recv(1)
        return time.perf_counter() - began_s

    def close(self) -> None:
        self._plug.sendall(bytes(8))
        self._plug.close()
        self._sink.wait()


class Hand:
    """A router's end of one worker's control connection."""

    def __init__(self, child: Child, port: int) -> None:
        self._child = child
        self._connection: aiohttp.ClientWebSocketResponse
        self.url = f"http://127.0.0.1:{port}"
        self.info: EngineInfo

    @classmethod
    async def start(cls, folder: Path, process: WorkerProcess) -> Hand:
        name = process.worker.name
        command = [sys.executable, "-m", "harness.experiment.processes.worker"]
        config = msgspec.json.encode(process)
        child = await Child.start(name, command, log=folder / f"{name}.log", config=config)
        return cls(child, (await child.ready(_START_S))["port"])

    async def connect(self, session: aiohttp.ClientSession, secret: str) -> None:
        headers = {msg.SECRET_HEADER: secret}
        self._connection = await session.ws_connect(
            f"{self.url}/control", headers=headers, max_msg_size=1 << 26
        )
        await self._connection.send_bytes(msg.encode(msg.Hello(None, None)))
        welcome, _ = msg.decode((await self._connection.receive()).data)
        assert isinstance(welcome, msg.Welcome), welcome
        self.info = welcome.info

    async def tell(self, command: msg.Command, ids: list[int] | None = None) -> None:
        await self._connection.send_bytes(msg.encode(command, pack_ids(ids or [])))

    async def until(self, kind: type, work: int) -> ev.Event:
        """The event that ends this work. A failure ends the benchmark."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                message, _ = msg.decode((await self._connection.receive()).data)
                for event in message.events if isinstance(message, msg.Report) else ():
                    if getattr(event, "work", None) == work:
                        if not isinstance(event, kind):
                            raise click.ClickException(f"{self.url}: {event}")
                        return event

    async def stop(self) -> None:
        await self._connection.close()
        await self._child.stop()


class Pair:
    """P that holds a prompt, and MD that is sent it again and again."""

    def __init__(self, p: Hand, md: Hand, tokens: int) -> None:
        self._p = p
        self._md = md
        draw = random.Random(0)
        self._ids = [draw.randrange(p.info.first_normal_id, p.info.vocab_size) for _ in range(tokens + 1)]
        self._positions = tokens
        self._work = 1
        self.kv_bytes = 0

    async def prefill(self) -> None:
        prefill = act.Prefill("r", 1, "p", self._positions)
        await self._p.tell(msg.Command(prefill, session="s"), self._ids)
        await self._p.until(ev.PrefillDone, 1)

    async def transfer_s(self) -> float:
        opened, moved, closed = self._work + 1, self._work + 2, self._work + 3
        self._work = closed
        await self._md.tell(msg.Command(act.Open("r", opened, "md", self._positions), session="s"), self._ids)
        await self._md.until(ev.Opened, opened)
        move = act.Transfer(
            "r", moved, TransferPurpose.MAIN, "p", 1, "md", opened, 0, self._positions, follow=False
        )
        began_s = time.perf_counter()
        await self._p.tell(msg.Command(move, target_url=f"{self._md.url}/kv"))
        done = await self._md.until(ev.TransferDone, moved)
        took_s = time.perf_counter() - began_s
        assert isinstance(done, ev.TransferDone)
        self.kv_bytes = done.kv_bytes
        await self._md.tell(msg.Command(act.Close("r", closed, "md", opened, keep=False)))
        await self._md.until(ev.Closed, closed)
        return took_s

    async def stop(self) -> None:
        await self._p.stop()
        await self._md.stop()


async def measure(
    engine: str, options: EngineOptions, transports: tuple[str, ...], tokens: int, segment: int, rounds: int
) -> dict[str, list[float]]:
    """MB/s of every round, by way."""
    found: dict[str, list[float]] = {"plain tcp": []}
    secret = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as folder:
        async with aiohttp.ClientSession() as session:
            started: dict[str, list[Hand]] = {}
            for transport in transports:
                for name in ("p", "md"):
                    worker = f"{name}-{transport}"
                    config = WorkerConfig(worker, "127.0.0.1", 0, secret, segment_tokens=segment)
                    process = WorkerProcess(engine, options, config, transport)
                    started.setdefault(transport, []).append(await Hand.start(Path(folder), process))
            pairs = {}
            for transport, (p, md) in started.items():
                # Only now: a worker drops a router that answers no ping, and vLLM takes long to start.
                await p.connect(session, secret)
                await md.connect(session, secret)
                pairs[transport] = Pair(p, md, tokens)
                await pairs[transport].prefill()
                await pairs[transport].transfer_s()  # connections, first touches
            plain = PlainTcp()
            for _ in range(rounds):
                for transport, pair in pairs.items():
                    took_s = await pair.transfer_s()
                    found.setdefault(transport, []).append(pair.kv_bytes / took_s / 1e6)
                blob = bytes(next(iter(pairs.values())).kv_bytes)
                found["plain tcp"].append(len(blob) / await asyncio.to_thread(plain.send_s, blob) / 1e6)
            plain.close()
            for pair in pairs.values():
                await pair.stop()
    return found


@click.command()
@click.option("--engine", default="llamacpp", show_default=True)
@click.option("--model", default="tiny:kv=16384", show_default=True)
@click.option("--transport", "transports", multiple=True, default=("tcp",), show_default=True)
@click.option("--tokens", default=2000, show_default=True, help="Positions of KV in a transfer.")
@click.option("--segment-tokens", default=1024, show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    engine: str,
    model: str,
    transports: tuple[str, ...],
    tokens: int,
    segment_tokens: int,
    rounds: int,
    as_json: bool,
) -> None:
    """MB/s of KV between two workers, and of the same bytes over one plain TCP connection."""
    options = EngineOptions(model=model, max_sequences=4, max_context_tokens=tokens + 64)
    found = asyncio.run(measure(engine, options, transports, tokens, segment_tokens, rounds))
    rows = {way: statistics.median(rates) for way, rates in found.items()}
    if as_json:
        print(json.dumps({"engine": engine, "model": model, "mb_s": found}))
        return
    for way, rate in rows.items():
        print(f"{way:12} {rate:8.0f} MB/s   {rate / rows['plain tcp']:.0%} of plain TCP")


if __name__ == "__main__":
    main()
