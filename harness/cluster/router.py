"""The live driver of the policy: worker messages become events, actions become commands.

It decides nothing. Everything it does is an action's wording on the wire, and everything it is told
goes to the policy and into the records.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Final, assert_never

import aiohttp
import msgspec

from harness.clock import Anchor, take_anchor
from harness.cluster import messages as msg
from harness.cluster.exchange import End, Exchange, Failure
from harness.cluster.unknowable import without_kv
from harness.cluster.worker_connection import WorkerAddress, WorkerConnection, WorkerRefusedError
from harness.engine import EngineInfo
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.config import PolicyConfig
from harness.policy.core import Policy
from harness.policy.journal import HandoffJournal, Row, decision_row
from reports.errors import RecordingError
from reports.schema import DECISIONS, HANDOFFS, WORKER_SAMPLES, Table
from reports.writer import TableWriter

_TICK_S: Final = 0.5


class RouterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a router needs to know. Rate and RTT of the WAN are what the link was set to; the policy
    corrects the rate by what it sees cross."""

    host: str
    port: int
    secret: str
    policy: PolicyConfig
    workers: tuple[WorkerAddress, ...]
    run_dir: str
    cell: str
    rep: int
    model: str
    wan_rate_bytes_s: float
    wan_rtt_ns: int
    record_decisions: bool = True
    start_timeout_s: float = 60.0
    heartbeat_s: float = 30.0
    """A worker that answers no ping for about so long is lost."""
    rejoin_s: float = 60.0
    """For how long a lost worker is looked for."""


class Router:
    """Runs on the event loop; every method is called there."""

    def __init__(self, config: RouterConfig) -> None:
        self.config = config
        self.policy = Policy(config.policy)
        self.infos: dict[str, EngineInfo] = {}
        self._anchor: Anchor = take_anchor()
        self._journal = HandoffJournal()
        self._exchanges: dict[ev.RequestId, Exchange] = {}
        self._timers: dict[ev.RequestId, asyncio.TimerHandle] = {}
        self._connections: dict[ev.WorkerName, WorkerConnection] = {}
        self._addresses: dict[ev.WorkerName, WorkerAddress] = {}
        self._work_at: dict[ev.WorkId, ev.WorkerName] = {}
        """Who a Cancel or Demote goes to: the worker that does the work (for transfers, the sender)."""
        self._work_of: dict[ev.RequestId, list[ev.WorkId]] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when records can no longer be written (a run that is not recorded is of no use) or the router
        itself is broken: it must not go on as half of one."""
        self._decided = 0
        self._staged: array[int] = array("I")
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._handoffs = self._writer(HANDOFFS)
        self._decisions = self._writer(DECISIONS) if config.record_decisions else None
        self._samples = self._writer(WORKER_SAMPLES)

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Connect to every worker. WorkerRefusedError or TimeoutError when one cannot be had."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._tell(ev.LinkMeasured(self.config.wan_rate_bytes_s, self.config.wan_rtt_ns))
        await asyncio.gather(*(self.join(address) for address in self.config.workers))
        self._spawn(self._tick())

    async def join(self, address: WorkerAddress) -> None:
        """Take a worker into the cluster, also while it runs."""
        assert self._session is not None
        self._check_name(address.name)
        first = next(iter(self.infos.values()), None)
        hello = msg.Hello(first.layout_hash if first else None, first.model_hash if first else None)
        try:
            connection = await WorkerConnection.open(
                self._session,
                address,
                self.config.secret,
                hello,
                start_timeout_s=self.config.start_timeout_s,
                heartbeat_s=self.config.heartbeat_s,
            )
        except TimeoutError:
            raise WorkerRefusedError(
                f"{address.name}: not reached at {address.host}:{address.port} "
                f"within {self.config.start_timeout_s:g} s"
            ) from None
        try:
            self._check_name(address.name)  # another of that name may have been faster
            self._check_fit(connection)
        except WorkerRefusedError:
            await connection.aclose()
            raise
        self.infos[address.name] = connection.info
        self._addresses[address.name] = address
        self._connections[address.name] = connection
        self._tell(
            ev.WorkerJoined(
                address.name,
                address.role,
                address.cluster,
                connection.info.max_sequences,
                connection.info.kv_bytes_per_token,
            )
        )
        self._spawn(self._serve(connection))

    def drain(self, worker: ev.WorkerName) -> bool:
        """Let a worker finish what it has and leave. False when there is no such worker."""
        if worker not in self._connections:
            return False
        self._tell(ev.WorkerDraining(worker))
        return True

    @property
    def workers_up(self) -> tuple[str, ...]:
        return tuple(self._connections)

    @property
    def requests_live(self) -> int:
        return len(self.policy.requests)

    async def aclose(self) -> None:
        """Close connections and finish the records."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._connections.values()):
            await connection.aclose()
        if self._session is not None:
            await self._session.close()
        for timer in self._timers.values():
            timer.cancel()
        for row in self._journal.unfinished():
            self._record(self._handoffs, self._knowable(row))
        for writer in (self._handoffs, self._decisions, self._samples):
            if writer is not None:
                writer.close()

    # --------------------------------------------------------------- requests

    def arrive(self, request: ev.RequestId, exchange: Exchange) -> None:
        """A client's request. Raises KeyError when the id is in use."""
        if request in self._exchanges or request in self.policy.requests:
            raise KeyError(request)
        self._exchanges[request] = exchange
        self._tell(
            ev.RequestArrived(request, exchange.session, exchange.prompt_tokens, exchange.sampling.max_tokens)
        )

    def leave(self, request: ev.RequestId, exchange: Exchange) -> None:
        """The client of this exchange has gone. A slow reader may still be here when its request has long
        settled and another has taken its id."""
        if self._exchanges.get(request) is exchange and not exchange.ended:
            exchange.ended = True
            self._tell(ev.ClientGone(request))

    # ---------------------------------------------------------------- workers

    async def _serve(self, connection: WorkerConnection) -> None:
        name = connection.address.name
        why = await connection.talk(self._report, lambda counters: self._sample(name, counters))
        if self._connections.get(name) is not connection:
            return  # it was retired
        del self._connections[name]
        self._tell(ev.WorkerLost(name, why))
        self._spawn(self._look_for(connection.address))

    async def _look_for(self, address: WorkerAddress) -> None:
        """A lost worker may come back, empty; nobody waits for it."""
        try:
            async with asyncio.timeout(self.config.rejoin_s):
                while True:
                    await asyncio.sleep(_TICK_S)
                    try:
                        await self.join(address)
                    except WorkerRefusedError:
                        continue
                    return
        except TimeoutError:
            return

    def _check_name(self, name: ev.WorkerName) -> None:
        if name in self._connections:
            raise WorkerRefusedError(f"{name}: is in the cluster already; names are unique")

    def _check_fit(self, connection: WorkerConnection) -> None:
        """Every worker must hold the same model in the same KV layout as the first."""
        for name, info in self.infos.items():
            ours = connection.info
            for what, theirs, mine in (
                ("model", info.model_hash, ours.model_hash),
                ("KV layout", info.layout_hash, ours.layout_hash),
            ):
                if theirs != mine:
                    raise WorkerRefusedError(
                        f"{connection.address.name}: {what} {mine} ({ours.engine} {ours.build}) cannot share "
                        f"KV with {name}'s {theirs} ({info.engine} {info.build})"
                    )

    def _report(self, event: ev.Event, ids: array[int]) -> None:
        self._staged = ids
        self._tell(event)

    def _sample(self, worker: str, counters: msg.Counters) -> None:
        address = self._addresses.get(worker)
        if address is None:
            return  # retired, with this on the way
        row = {
            "t_ns": counters.t_ns,
            "worker": worker,
            "role": address.role.value,
            "cluster": address.cluster,
            "cpu_ns": counters.cpu_ns,
            "rss_bytes": counters.rss_bytes,
            **msgspec.structs.asdict(counters.usage),
        }
        self._record(self._samples, row)

    # ----------------------------------------------------------------- policy

    def _tell(self, event: ev.Event) -> None:
        now_ns = self._anchor.epoch_ns(time.monotonic_ns())
        actions = self.policy.handle(now_ns, event)
        if self._decisions is not None:
            self._record(self._decisions, decision_row(self._decided, now_ns, event, actions))
        self._decided += 1
        row = self._journal.observe(now_ns, event, actions)
        for action in actions:
            self._do(action)
        if row is not None:
            self._record(self._handoffs, self._knowable(row))

    def _knowable(self, row: Row) -> Row:
        """What is known of a request: of workers that recompute, nothing about KV."""
        return without_kv(row) if any(info.recomputes for info in self.infos.values()) else dict(row)

    def _record(self, writer: TableWriter, row: Row) -> None:
        if self.failed.done():
            return
        try:
            writer.write(row)
        except RecordingError as error:
            self.failed.set_exception(error)

    def _do(self, action: act.Action) -> None:
        match action:
            case act.Prefill() | act.Open():
                ids = self._exchanges[action.request].context[: action.positions + 1]
                session = self._exchanges[action.request].session
                self._command(action.worker, msg.Command(action, session=session), ids)
            case act.Extend():
                context = self._exchanges[action.request].context
                self._command(action.worker, msg.Command(action), context[action.p0 : action.p1])
            case act.Decode():
                exchange = self._exchanges[action.request]
                command = msg.Command(action, sampling=exchange.sampling)
                self._command(action.worker, command, exchange.context[action.p0 :])
            case act.Transfer():
                url = self._addresses[action.target].url("/kv")
                self._command(action.source, msg.Command(action, target_url=url))
            case act.Close():
                self._command(action.worker, msg.Command(action))
            case act.Cancel() | act.Demote():
                worker = self._work_at.get(action.work)
                if worker in self._connections:
                    self._connections[worker].send(msg.Command(action))
            case act.Emit():
                self._exchanges[action.request].emit(self._staged)
            case act.Finish():
                times = self._knowable(self._journal.row(action.request))
                self._exchanges[action.request].end(End(action.reason, times))
            case act.Fail():
                self._exchanges[action.request].end(Failure(action.error))
            case act.SetDeadline():
                self._set_deadline(action)
            case act.Settled():
                self._forget(action.request)
            case act.Retire():
                self._retire(action.worker)
            case act.Decided():
                pass
            case _:
                assert_never(action)

    def _command(self, worker: ev.WorkerName, command: msg.Command, ids: Sequence[int] = ()) -> None:
        action = command.action
        self._work_at[action.work] = worker
        self._work_of.setdefault(action.request, []).append(action.work)
        self._connections[worker].send(command, ids)

    def _set_deadline(self, action: act.SetDeadline) -> None:
        if (earlier := self._timers.pop(action.request, None)) is not None:
            earlier.cancel()
        delay_s = (action.at_ns - self._anchor.epoch_ns(time.monotonic_ns())) / 1e9
        loop = asyncio.get_running_loop()
        self._timers[action.request] = loop.call_later(delay_s, self._expire, action.request)

    def _expire(self, request: ev.RequestId) -> None:
        self._timers.pop(request, None)
        self._tell(ev.DeadlineReached(request))

    def _forget(self, request: ev.RequestId) -> None:
        self._exchanges.pop(request, None)
        for work in self._work_of.pop(request, ()):
            self._work_at.pop(work, None)
        if (timer := self._timers.pop(request, None)) is not None:
            timer.cancel()

    def _retire(self, worker: ev.WorkerName) -> None:
        connection = self._connections.pop(worker, None)
        self._addresses.pop(worker, None)
        if connection is not None:
            self._spawn(connection.aclose())
            self._spawn(self._left(worker))

    async def _left(self, worker: ev.WorkerName) -> None:
        self._tell(ev.WorkerLost(worker, "drained"))

    def _writer(self, table: Table) -> TableWriter:
        anchor = {
            "process": "router",
            "clock_offset_ns": str(self._anchor.offset_ns),
            "clock_error_ns": str(self._anchor.error_ns),
        }
        config = self.config
        return TableWriter(
            Path(config.run_dir), table, cell=config.cell, rep=config.rep, shard="router", metadata=anchor
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for writer in (self._handoffs, self._decisions, self._samples):
                if writer is not None:
                    writer.tick()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)
