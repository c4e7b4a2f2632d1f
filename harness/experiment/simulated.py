"""Runs an experiment in virtual time: cells and repetitions apart, as many at once as there are cores."""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import tomli_w
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from harness.clock import take_anchor
from harness.experiment.config import Cell, Experiment, resolve
from harness.experiment.failure import RunFailedError
from harness.experiment.runner import order
from harness.experiment.simulated_cell import cost_per_hour, link_profile, load_of, make_sessions, sim_cell
from harness.experiment.simulated_faults import sim_faults
from harness.sim.cell import SimCell
from harness.sim.columns import ColumnWriter
from harness.sim.simulation import Simulation
from harness.sim.tables import TableObserver
from reports.host import probe_host, probe_versions
from reports.runinfo import CellInfo, EngineInfo, LinkInfo, RepInfo, RunInfo, RunState, TraceInfo, Validity
from reports.schema import FAULTS

_PACKAGES: Final = ("numpy", "pyarrow", "msgspec")
_SOURCE: Final = Path(__file__).resolve().parents[2]


class SimulatedRep(msgspec.Struct, frozen=True):
    """What one simulated cell and repetition came to."""

    cell: str
    rep: int
    end_ns: int
    statuses: dict[str, int]
    hit: float | None
    """Achieved token-weighted prefix hit, and the one that the trace implies."""
    expected_hit: float | None
    cautions: tuple[str, ...]
    trace: TraceInfo
    wall_s: float
    requests: int


def simulate_rep(cell: Cell, rep: int, seed: int, run_dir: Path, *, decisions: bool) -> SimulatedRep:
    """One cell, once, into its tables. The same seed gives the same bytes on the same kind of machine."""
    began_s = time.perf_counter()
    plan = make_sessions(cell, seed, rep)
    faults, fault_rows = sim_faults(cell, seed)
    made = msgspec.structs.replace(sim_cell(cell, requests=plan.header.turns), faults=faults)
    load, sessions = load_of(cell, plan, seed)
    observer = TableObserver(
        run_dir, cell=cell.name, rep=rep, profile=link_profile(cell).name, decisions=decisions
    )
    if fault_rows:
        table = ColumnWriter(run_dir, FAULTS, cell=cell.name, rep=rep)
        for row in fault_rows:
            table.write(row)
        table.close()
    sim = Simulation(made, sessions, load, observer, seed=seed + rep, prefix=f"{cell.name}/{rep}/")
    gc.collect()
    gc.freeze()  # the plan stays as it is: scanning it again and again costs a tenth of the time
    try:
        sim.run()
    finally:
        observer.close()
        gc.unfreeze()
    known = observer.prompt_tokens
    header = plan.header
    cautions = list(header.warnings)
    if header.dropped_sessions:
        cautions.append(
            f"{header.dropped_sessions} sessions ({header.dropped_turns} turns) of the trace exceed the "
            f"context of {header.max_context_tokens} tokens and were left out"
        )
    return SimulatedRep(
        cell.name,
        rep,
        sim.queue.now_ns,
        observer.statuses,
        observer.cached_tokens / known if known else None,
        observer.expected_tokens / known if known else None,
        tuple(cautions),
        TraceInfo(header.trace, header.digest, header.turns, header.sessions, source=cell.workload.source),
        time.perf_counter() - began_s,
        sim.arrived,
    )


def run_simulated(experiment: Experiment, run_dir: Path, console: Console, *, jobs: int) -> RunInfo:
    """All cells and repetitions, `jobs` at a time. RunFailedError names the cell whose simulation failed."""
    cells = resolve(experiment)
    plan = order(cells, experiment.repetitions)
    for cell in cells:
        sim_faults(cell, experiment.seed)
        sim_cell(cell, requests=0)  # a wrong profile or key is told before anything runs
    anchor = take_anchor()
    info = _describe(experiment, cells, anchor.epoch_ns(time.monotonic_ns()))
    info.write(run_dir)
    (run_dir / "experiment.toml").write_text(info.config_toml, encoding="utf-8")
    done: list[SimulatedRep] = []
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total} cells"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bars:
        task = bars.add_task(experiment.name, total=len(plan))
        for rep in _all(experiment, plan, run_dir, jobs):
            done.append(rep)
            bars.advance(task)
            counts = (
                ", ".join(f"{n} {status}" for status, n in sorted(rep.statuses.items())) or "nothing sent"
            )
            rate = rep.requests / rep.wall_s
            console.print(
                f"{rep.cell} rep {rep.rep}: {counts}; {rate:,.0f} requests/s simulated", highlight=False
            )
    info = _finished(info, cells, plan, done, anchor.epoch_ns(time.monotonic_ns()))
    info.write(run_dir)
    return info


def _all(
    experiment: Experiment, plan: list[tuple[Cell, int]], run_dir: Path, jobs: int
) -> Iterator[SimulatedRep]:
    seed, decisions = experiment.seed, experiment.record_decisions
    if jobs <= 1 or len(plan) == 1:
        for cell, rep in plan:
            yield simulate_rep(cell, rep, seed, run_dir, decisions=decisions)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(jobs, len(plan)), mp_context=context) as pool:
        futures = {
            pool.submit(simulate_rep, cell, rep, seed, run_dir, decisions=decisions): (cell, rep)
            for cell, rep in plan
        }
        for future in concurrent.futures.as_completed(futures):
            cell, rep = futures[future]
            try:
                yield future.result()
            except concurrent.futures.process.BrokenProcessPool:
                raise RunFailedError(
                    f"cell {cell.name} rep {rep}: its process was killed (out of memory?)"
                ) from None


# ---------------------------------------------------------------------- run.json


def _describe(experiment: Experiment, cells: tuple[Cell, ...], now_ns: int) -> RunInfo:
    config = _without_none(msgspec.to_builtins(experiment))
    workload = experiment.workload
    return RunInfo(
        name=experiment.name,
        state=RunState.RUNNING,
        started_ns=now_ns,
        seed=experiment.seed,
        config_toml=tomli_w.dumps(config),
        config=config,
        versions=probe_versions(_SOURCE, _PACKAGES),
        host=probe_host(),
        cells=tuple(_cell_info(experiment, cell) for cell in cells),
        load_driver="sim",
        simulated=True,
        token_scale=workload.token_scale,
        time_scale=workload.time_scale,
        slo={k: v for k, v in msgspec.to_builtins(experiment.slo).items() if v is not None},
        currency=experiment.cost.currency,
        wan_price_per_gbyte=experiment.cost.wan_per_gbyte,
    )


def _cell_info(experiment: Experiment, cell: Cell) -> CellInfo:
    made = sim_cell(cell, requests=0)
    crosses = any(worker.cluster == "B" for worker in made.workers)
    profile = link_profile(cell)
    return CellInfo(
        name=cell.name,
        mode=cell.mode,
        label=cell.label,
        reps=experiment.repetitions,
        link=_link_info(made, profile.name) if crosses else LinkInfo("none", modelled=False, profile="none"),
        engines=tuple(
            EngineInfo(
                worker=worker.name,
                role=worker.role.value,
                cluster=worker.cluster,
                engine="sim",
                model=worker.deployment.name,
                emulated=True,
                details={"kv_bytes_per_token": f"{worker.deployment.kv_bytes_per_token:g}"},
            )
            for worker in made.workers
        ),
        parameters={"profile": profile.name, "rate_mbit": profile.a_to_b.rate_mbit},
        cost_per_hour=cost_per_hour(cell, made.workers, experiment.cost),
    )


def _link_info(made: SimCell, profile: str) -> LinkInfo:
    line = made.line
    return LinkInfo(
        driver="sim",
        modelled=True,
        profile=profile,
        a_to_b_rate_bit_s=round(line.rate_bytes_s * 8),
        a_to_b_delay_ms=line.rtt_s * 500,
        b_to_a_delay_ms=line.rtt_s * 500,
        details={
            "efficiency": f"{line.efficiency:g}",
            "connections": str(line.connections),
            "connection_bit_s": f"{line.connection_bytes_s * 8:g}",
            "rate_sigma": f"{line.rate_sigma:g}",
            "loss_share": f"{line.loss_share:g}",
        },
    )


def _finished(
    info: RunInfo,
    cells: tuple[Cell, ...],
    plan: list[tuple[Cell, int]],
    done: list[SimulatedRep],
    now_ns: int,
) -> RunInfo:
    places = {(cell.name, rep): i for i, (cell, rep) in enumerate(plan)}
    bounds = {cell.name: cell.workload.hit_tolerance_points for cell in cells}
    reps = []
    for rep in sorted(done, key=lambda r: places[r.cell, r.rep]):
        cautions = list(rep.cautions)
        if rep.hit is not None and rep.expected_hit is not None:
            achieved, expected = 100 * rep.hit, 100 * rep.expected_hit
            if abs(achieved - expected) > bounds[rep.cell]:
                cautions.append(
                    f"{rep.cell} rep {rep.rep}: prefix hit {achieved:.1f} %, {expected:.1f} % implied by the "
                    "trace and the size of the caches"
                )
        reps.append(
            RepInfo(
                rep.cell,
                rep.rep,
                places[rep.cell, rep.rep],
                0,
                rep.end_ns,
                validity=Validity(cautions=tuple(cautions)),
            )
        )
    cautions = list(dict.fromkeys(c for rep in reps for c in rep.validity.cautions))
    return msgspec.structs.replace(
        info,
        state=RunState.COMPLETE,
        ended_ns=now_ns,
        reps=tuple(reps),
        trace=done[0].trace if done else None,
        validity=Validity(cautions=tuple(cautions)),
    )


def _without_none(value: Any) -> Any:
    """TOML has no null: a key that is None is left out, which reads back as None."""
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_none(v) for v in value]
    return value
