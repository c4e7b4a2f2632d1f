"""One cell, once: link, workers, router, load; then everything down again in reverse order."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from adapters.links import open_link
from adapters.links.precedence import take_precedence
from adapters.transports import OWN
from harness.clock import take_anchor
from harness.cluster.router import RouterConfig
from harness.cluster.worker import WorkerConfig
from harness.cluster.worker_connection import WorkerAddress
from harness.engine import EngineInfo
from harness.experiment.check import profile_of
from harness.experiment.config import Cell
from harness.experiment.failure import RunFailedError
from harness.experiment.fault_task import FaultTask
from harness.experiment.link_sampler import LinkSampler
from harness.experiment.plans import PlanShelf
from harness.experiment.processes.child import Child
from harness.experiment.processes.router import RouterProcess
from harness.experiment.processes.worker import WorkerProcess
from harness.experiment.progress import RunProgress
from harness.experiment.surroundings import CellSurroundings
from harness.experiment.topology import WorkerSlot, workers_of
from harness.faults import Ledger
from harness.faults.kinds import WorkerKill
from harness.link import Cluster, Link, LinkError, LinkProfile, LinkSample
from harness.loadgen.job import LoadJob, Target, write_job
from harness.loadgen.progress import Failed, Finished, Progress, Started, Warned, decode_line
from workloads.replay import PlanHeader

_START_S: Final = 240.0  # three vLLM workers import for 15 s of CPU each, at once, perhaps on a busy machine
_LOOPBACK: Final = "127.0.0.1"


@dataclass
class CellRecord:
    """What the runner learns of a cell besides its tables."""

    cell: Cell
    rep: int
    started_ns: int
    link: Link | None = None
    link_samples: list[LinkSample] = field(default_factory=list)
    engines: dict[str, EngineInfo] = field(default_factory=dict)
    slots: tuple[WorkerSlot, ...] = ()
    plan: PlanHeader | None = None
    finished: Finished | None = None
    fault_error: str | None = None
    profiles: tuple[LinkProfile, ...] = ()
    """All that the link was shaped to."""
    died: list[str] = field(default_factory=list)
    """Workers that ended under load without a fault that says so, each with its last words."""
    ended_ns: int | None = None
    warnings: list[str] = field(default_factory=list)


class CellRun:
    """Runs one cell. `interrupt` ends the load early and keeps what was recorded."""

    def __init__(
        self,
        cell: Cell,
        rep: int,
        run_dir: Path,
        shelf: PlanShelf,
        progress: RunProgress,
        *,
        ledger: Ledger,
        seed: int,
        decisions: bool,
    ) -> None:
        self._cell = cell
        self._rep = rep
        self._run_dir = run_dir
        self._logs = run_dir / "logs" / f"{cell.name}-rep{rep}"
        self._shelf = shelf
        self._progress = progress
        self._ledger = ledger
        self._surroundings = CellSurroundings(profile_of(cell))
        self._seed = seed
        self._decisions = decisions
        self._secret = secrets.token_urlsafe(24)
        self._load: Child | None = None
        self._cluster: list[Child] = []
        self._killed = {fault.target for fault in cell.faults if isinstance(fault, WorkerKill)}
        self._anchor = take_anchor()
        self.record = CellRecord(cell, rep, self._now_ns(), slots=workers_of(cell))

    async def run(self) -> CellRecord:
        """Raises RunFailedError when a process does not start or the load cannot be replayed."""
        async with AsyncExitStack() as stack:
            profile = self._surroundings.profile
            link = await self._open_link(stack, profile)
            self._progress.step("starting workers")
            addresses = await self._start_workers(stack, link)
            router_port = await self._start_router(stack, link, addresses, profile)
            self._progress.step("preparing the trace")
            first = next(iter(self.record.engines.values()))
            plan, self.record.plan = await asyncio.to_thread(self._shelf.plan, self._cell, self._rep, first)
            await self._load_and_watch(link, router_port, plan)
            self._note_deaths()
        self.record.ended_ns = self._now_ns()
        return self.record

    def interrupt(self) -> bool:
        """Ask the load generator to drain. False when it has not been started: there is nothing to drain."""
        if self._load is None:
            return False
        if self._load.process.returncode is None:
            self._load.process.send_signal(signal.SIGINT)
        return True

    async def _load_and_watch(self, link: Link | None, port: int, plan: Path) -> None:
        """Replay until the load ends, or something without which nothing is measured."""
        tasks = [asyncio.create_task(self._watch_router())]
        if link is not None:
            sampler = LinkSampler(link, self._run_dir, self._cell.name, self._rep)
            self.record.link_samples = sampler.samples
            tasks.append(asyncio.create_task(sampler.run()))
        tasks.append(asyncio.create_task(self._replay(link, port, plan)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except LinkError as error:
            raise RunFailedError(f"cell {self._cell.name}: the link failed under load: {error}") from error
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _watch_router(self) -> None:
        """Without a router every request fails: nothing is measured any more."""
        router = next(child for child in self._cluster if child.name == "router")
        await router.process.wait()
        raise RunFailedError(f"cell {self._cell.name}: the router ended under load: {router.last_words()}")

    def _note_deaths(self) -> None:
        """Requests may have survived it, but the cluster was not the one that was to be measured."""
        self.record.died = [
            f"{child.name} ended under load: {child.last_words()}"
            for child in self._cluster
            if child.process.returncode is not None and child.name not in self._killed
        ]

    # ---------------------------------------------------------------- the link

    async def _open_link(self, stack: AsyncExitStack, profile: LinkProfile) -> Link | None:
        """No link where no worker stands in B: nothing would cross it."""
        if all(slot.cluster is Cluster.A for slot in self.record.slots):
            return None
        self._progress.step("opening the link")
        link = await open_link(self._cell.link.driver, profile, run_dir=self._run_dir, seed=self._seed)
        stack.push_async_callback(link.aclose)
        if link.description.modelled and self._cell.cluster.transport != OWN:
            raise RunFailedError(
                f"cell {self._cell.name}: transport {self._cell.cluster.transport!r} has connections of its "
                f"own, which the {link.description.driver} does not carry; use link driver netem or uml"
            )
        for name, pid in link.processes.items():
            self._ledger.record(name, pid)
        self.record.link = self._surroundings.link = link
        return link

    # ------------------------------------------------------------- the cluster

    async def _start_workers(self, stack: AsyncExitStack, link: Link | None) -> list[WorkerAddress]:
        started = [asyncio.create_task(self._start_worker(stack, link, slot)) for slot in self.record.slots]
        try:
            return list(await asyncio.gather(*started))
        except BaseException:
            for task in started:
                task.cancel()
            await asyncio.gather(*started, return_exceptions=True)
            raise

    async def _start_worker(
        self, stack: AsyncExitStack, link: Link | None, slot: WorkerSlot
    ) -> WorkerAddress:
        config = self._cell.cluster
        host = link.host(slot.cluster) if link else _LOOPBACK
        process = WorkerProcess(
            engine=config.engine,
            options=config.options(f"cell {self._cell.name}: cluster", slot.name),
            worker=WorkerConfig(
                name=slot.name,
                host=host,
                port=0,
                secret=self._secret,
                kv_connections=config.kv_connections,
                segment_tokens=config.segment_tokens,
                stall_s=config.stall_s,
            ),
            transport=config.transport,
        )
        child = await self._start(
            stack, link, slot.cluster, slot.name, "worker", msgspec.json.encode(process)
        )
        port = (await child.ready(_START_S))["port"]
        if link is not None and slot.cluster is Cluster.B:
            host, port = await link.route(host, port)
        return WorkerAddress(slot.name, slot.role, slot.cluster.value, host, port)

    async def _start_router(
        self, stack: AsyncExitStack, link: Link | None, workers: Sequence[WorkerAddress], profile: LinkProfile
    ) -> int:
        out, back = profile.a_to_b, profile.b_to_a
        config = RouterConfig(
            host=link.host(Cluster.A) if link else _LOOPBACK,
            port=0,
            secret=self._secret,
            policy=self._cell.policy,
            workers=tuple(workers),
            run_dir=str(self._run_dir),
            cell=self._cell.name,
            rep=self._rep,
            model=self._cell.cluster.model,
            wan_rate_bytes_s=out.rate_mbit * 125_000 if out.rate_mbit else 0.0,
            wan_rtt_ns=int((out.delay_ms + back.delay_ms) * 1e6),
            record_decisions=self._decisions,
        )
        cluster = self._cell.cluster
        process = RouterProcess(config, cluster.engine, cluster.options(f"cell {self._cell.name}: cluster"))
        child = await self._start(stack, link, Cluster.A, "router", "router", msgspec.json.encode(process))
        ready = await child.ready(_START_S)
        self.record.engines = msgspec.convert(ready["infos"], dict[str, EngineInfo])
        port: int = ready["port"]
        return port

    async def _start(
        self,
        stack: AsyncExitStack,
        link: Link | None,
        cluster: Cluster,
        name: str,
        module: str,
        config: bytes,
    ) -> Child:
        prefix = link.command_prefix(cluster) if link else ()
        command = [*prefix, sys.executable, "-m", f"harness.experiment.processes.{module}"]
        child = await Child.start(name, command, log=self._logs / f"{name}.log", config=config)
        stack.push_async_callback(child.stop)
        self._take(child)
        self._cluster.append(child)
        return child

    def _take(self, child: Child) -> None:
        self._ledger.record(child.name, child.pid)
        self._surroundings.add(child)

    # ---------------------------------------------------------------- the load

    async def _replay(self, link: Link | None, port: int, plan: Path) -> None:
        async with AsyncExitStack() as stack:
            await self._replay_until_end(stack, link, port, plan)

    async def _replay_until_end(
        self, stack: AsyncExitStack, link: Link | None, port: int, plan: Path
    ) -> None:
        load = self._cell.load
        host = link.host(Cluster.A) if link else _LOOPBACK
        job = LoadJob(
            target=Target(base_url=f"http://{host}:{port}", model=self._cell.cluster.model),
            plan=plan,
            run_dir=self._run_dir,
            cell=self._cell.name,
            rep=self._rep,
            seed=self._seed,
            arrivals=load.arrivals,
            limits=load.limits,
            warmup=load.warmup,
            cancellation=load.cancellation,
            connections=load.connections,
            temperature=load.temperature,
            keep_output_ids=load.keep_output_ids,
            bounds=load.bounds,
            processes=load.processes,
            master=load.master,
            web=load.web,
        )
        path = self._logs / "job.json"
        write_job(job, path)
        prefix = link.command_prefix(Cluster.A) if link else ()
        command = [*prefix, sys.executable, "-m", "harness.loadgen", str(path)]
        self._load = await Child.start("loadgen", command, log=self._logs / "loadgen.log", config=None)
        stack.push_async_callback(self._load.stop)
        # It must not wait for the workers that it measures.
        take_precedence(self._load.pid)
        self._take(self._load)
        faults = FaultTask(
            self._cell.faults,
            self._surroundings,
            self._run_dir,
            self._cell.name,
            self._rep,
            seed=self._seed,
            anchor=self._anchor,
        )
        stack.push_async_callback(faults.aclose)
        if link is not None:
            faults.check(link)
        async for raw in self._load.lines():
            match decode_line(raw):
                case Progress() as progress:
                    self._progress.load(progress)
                case Warned() as warned:
                    self.record.warnings.append(warned.message)
                    self._progress.warn(warned.message)
                case Finished() as finished:
                    self.record.finished = finished
                case Failed() as failed:
                    raise RunFailedError(f"cell {self._cell.name}: load generator: {failed.message}")
                case Started() as started:
                    self._progress.step("replaying")
                    faults.start(started.t0_ns)
        await self._load.process.wait()
        self.record.fault_error = faults.error
        self.record.profiles = (self._surroundings.profile, *faults.shaped)
        if self.record.finished is None:
            raise RunFailedError(f"cell {self._cell.name}: load generator: {self._load.last_words()}")

    def _now_ns(self) -> int:
        return self._anchor.epoch_ns(time.monotonic_ns())
