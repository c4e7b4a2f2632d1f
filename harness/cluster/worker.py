"""One worker: an engine on its thread, and the aiohttp server through which router and peers reach it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from typing import Final

import msgspec
import psutil
from aiohttp import WSMsgType, web
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from harness.clock import take_anchor
from harness.cluster import messages as msg
from harness.cluster.engine_thread import EngineThread, Progress, Told
from harness.cluster.frame import MAX_FRAME_BYTES, FrameError, pack_ids, unpack_ids
from harness.cluster.kv_receiver import KvReceiver
from harness.cluster.kv_sender import KvSender
from harness.cluster.progress import ProgressBoard
from harness.engine import Engine
from harness.kv_transport import KvTransport
from harness.policy import actions as act
from harness.policy import events as ev

_COUNTERS_S: Final = 0.25
_SHUTDOWN_S: Final = 0.2  # peers keep idle KV connections open; nothing on them is worth waiting for
_MAX_REPORTS: Final = 100_000
_MAX_EVENTS: Final = 1024  # in one frame: its head stays within bounds however long the router has stalled


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a worker serves. `port` 0 takes a free one."""

    name: str
    host: str
    port: int
    secret: str
    kv_connections: int = 4
    segment_tokens: int = 1024
    """Most tokens exported in one piece; smaller pieces overlap better, larger ones cost less."""
    stall_s: float = 30.0
    """A transfer without progress for so long has failed; so has a router that answers no ping for it."""


class Worker:
    """Serves one router at a time. When the router goes, every sequence goes with it."""

    def __init__(self, config: WorkerConfig, engine: Engine, transport: KvTransport | None = None) -> None:
        self._config = config
        self._anchor = take_anchor()
        self._process = psutil.Process()
        loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = loop.create_future()
        """Set when the engine has died; the process must end."""
        self._thread = EngineThread(config.name, engine, loop, self._deliver, self._crashed)
        self._board = ProgressBoard()
        self._sender = KvSender(
            config.name,
            config.secret,
            self._thread,
            self._board,
            self._tell,
            transport,
            connections=config.kv_connections,
            segment_tokens=config.segment_tokens,
            stall_s=config.stall_s,
        )
        self._receiver = KvReceiver(
            config.name, self._thread, self._board, self._tell, transport, stall_s=config.stall_s
        )
        self._transport = transport
        self._router: web.WebSocketResponse | None = None
        self._outbox: asyncio.Queue[Told] = asyncio.Queue(_MAX_REPORTS)
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; returns the port. OSError when the address is taken."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/control", self._control),
                web.get("/kv", self._kv),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._config.host, self._config.port)
        await site.start()
        self._thread.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def aclose(self) -> None:
        await self._sender.aclose()
        if self._runner is not None:
            await self._runner.cleanup()
        await asyncio.to_thread(self._thread.stop)
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------------ endpoints

    async def _control(self, request: web.Request) -> web.StreamResponse:
        self._check_secret(request)
        if self._router is not None:
            raise web.HTTPConflict(text=f"{self._config.name} has a router already")
        # A router that answers no ping closes nothing any more: what is held for it must not stay for ever.
        connection = web.WebSocketResponse(
            max_msg_size=MAX_FRAME_BYTES, compress=False, heartbeat=self._config.stall_s
        )
        self._router = connection
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                await connection.prepare(request)
                if await self._shake_hands(connection):
                    await self._talk(connection)
        except FrameError as error:
            await connection.close(message=str(error).encode()[:120])
        finally:
            await self._sender.reset()
            await self._thread.call(self._thread.desk.reset)
            self._outbox = asyncio.Queue(_MAX_REPORTS)
            self._router = None
        return connection

    async def _shake_hands(self, connection: web.WebSocketResponse) -> bool:
        first = await connection.receive(timeout=self._config.stall_s)
        if first.type is not WSMsgType.BINARY:
            raise FrameError("expected Hello in a binary frame")
        hello, _ = msg.decode(first.data)
        if not isinstance(hello, msg.Hello):
            raise FrameError(f"expected Hello, got {type(hello).__name__}")
        info = self._thread.engine.info
        for what, wanted, ours in (
            ("model", hello.model_hash, info.model_hash),
            ("KV layout", hello.layout_hash, info.layout_hash),
        ):
            if wanted is not None and wanted != ours:
                error = f"{self._config.name}: {what} {ours} differs from the cluster's {wanted}"
                await connection.send_bytes(msg.encode(msg.Refusal(error)))
                return False
        await connection.send_bytes(msg.encode(msg.Welcome(info)))
        return True

    async def _talk(self, connection: web.WebSocketResponse) -> None:
        """Obey, report and count; when one of them ends, so does the connection: none works alone."""
        talking = [asyncio.create_task(part(connection)) for part in (self._obey, self._report, self._count)]
        try:
            done, _ = await asyncio.wait(talking, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)
        for task in done:
            task.result()

    async def _obey(self, connection: web.WebSocketResponse) -> None:
        async for frame in connection:
            if frame.type is not WSMsgType.BINARY:
                return
            command, body = msg.decode(frame.data)
            if not isinstance(command, msg.Command):
                raise FrameError(f"expected Command, got {type(command).__name__}")
            self._command(command, unpack_ids(body))

    def _command(self, command: msg.Command, ids: array[int]) -> None:
        action = command.action
        match action:
            case act.Transfer():
                assert command.target_url is not None
                self._sender.start(action, command.target_url)
            case act.Demote():
                self._sender.demote(action)
            case act.Cancel() if self._sender.cancel(action.work):
                pass
            case _:
                if isinstance(action, act.Prefill | act.Open):
                    # A transfer may follow at once; it must find the sequence, even if the engine has not.
                    self._board.update({action.work: 0})
                self._thread.post(lambda: self._thread.desk.do(command, ids))

    async def _kv(self, request: web.Request) -> web.StreamResponse:
        self._check_secret(request)
        connection = web.WebSocketResponse(max_msg_size=1 << 20, compress=False)
        await connection.prepare(request)
        try:
            await self._receiver.serve(connection)
        except FrameError as error:
            await connection.close(message=str(error).encode()[:120])
        return connection

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"worker": self._config.name, "router": self._router is not None})

    async def _metrics(self, _: web.Request) -> web.Response:
        registry = CollectorRegistry()
        usage = await self._thread.call(self._thread.engine.usage)
        counted = {name: value for name, value in msgspec.structs.asdict(usage).items() if value is not None}
        for field, value in counted.items():
            gauge = Gauge(f"pddbench_{field}", f"Engine counter {field}.", ["worker"], registry=registry)
            gauge.labels(self._config.name).set(value)
        return web.Response(body=generate_latest(registry), content_type="text/plain")

    def _check_secret(self, request: web.Request) -> None:
        if not msg.knows_secret(request.headers, self._config.secret):
            raise web.HTTPForbidden(text=f"{self._config.name}: wrong {msg.SECRET_HEADER}")

    # -------------------------------------------------------------------- reports

    async def _report(self, connection: web.WebSocketResponse) -> None:
        """Send reports in order; what has gathered meanwhile goes in one frame."""
        while True:
            gathered = list(await self._outbox.get())
            while not self._outbox.empty():
                gathered += self._outbox.get_nowait()
            for start in range(0, len(gathered), _MAX_EVENTS):
                told = gathered[start : start + _MAX_EVENTS]
                report = msg.Report(tuple(event for event, _ in told), tuple(len(ids) for _, ids in told))
                body = pack_ids([i for _, ids in told for i in ids])
                await connection.send_bytes(msg.encode(report, body))

    async def _count(self, connection: web.WebSocketResponse) -> None:
        while True:
            usage = await self._thread.call(self._thread.engine.usage)
            with self._process.oneshot():
                times = self._process.cpu_times()
                rss = self._process.memory_info().rss
            now_ns = self._anchor.epoch_ns(time.monotonic_ns())
            cpu_ns = int((times.user + times.system) * 1e9)
            await connection.send_bytes(msg.encode(msg.Counters(now_ns, usage, cpu_ns, rss)))
            await asyncio.sleep(_COUNTERS_S)

    def _deliver(self, told: Told, progress: Progress) -> None:
        self._board.update(progress)
        if told and self._router is not None:
            try:
                self._outbox.put_nowait(told)
            except asyncio.QueueFull:
                self._crashed(RuntimeError(f"{self._config.name}: the router has stopped reading"))

    def _tell(self, event: ev.Event) -> None:
        self._deliver([(event, ())], {})

    def _crashed(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
