"""An experiment's faults in virtual time: when the line becomes another one, and when workers die."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from harness.experiment.config import Cell, ConfigError
from harness.experiment.simulated_cell import line_of, link_profile
from harness.experiment.topology import workers_of
from harness.faults.kinds import (
    Bufferbloat,
    LinkFault,
    ProcessFault,
    WorkerKill,
    WorkerPause,
    WorkerSlowdown,
)
from harness.faults.line import distorted
from harness.sim.cell import Pause, SimFault, Slowdown

_LINK_KINDS: Final = LinkFault.__args__
_NS: Final = 1e9


def sim_faults(cell: Cell, seed: int) -> tuple[tuple[SimFault, ...], list[dict[str, Any]]]:
    """Changes in order of time, and the rows of the `faults` table. ConfigError for what is not simulated."""
    changes: list[SimFault] = []
    rows: list[dict[str, Any]] = []
    windows: list[tuple[float, float, LinkFault]] = []
    rng = random.Random(seed)
    for index, fault in enumerate(cell.faults):
        if isinstance(fault, WorkerKill | WorkerPause | WorkerSlowdown):
            changes += _of_worker(fault, _worker(cell, fault, index))
            rows.append(_row(fault, fault.at_s, _end_s(fault)))
        elif isinstance(fault, _LINK_KINDS) and not isinstance(fault, Bufferbloat):
            for begin, end in fault.windows(rng):
                windows.append((begin, end, fault))
                rows.append(_row(fault, begin, end))
        else:
            raise ConfigError(
                f"cell {cell.name}: faults[{index}]: {fault.kind} is not simulated; leave it out, or run live"
            )
    profile, slots = link_profile(cell), workers_of(cell)
    for at_s in sorted({t for begin, end, _ in windows for t in (begin, end)}):
        holding = [fault for begin, end, fault in windows if begin <= at_s < end]
        changes.append(SimFault(round(at_s * _NS), line=line_of(cell, distorted(profile, holding), slots)))
    return tuple(sorted(changes, key=lambda c: c.at_ns)), rows


def _of_worker(fault: WorkerKill | WorkerPause | WorkerSlowdown, worker: str) -> list[SimFault]:
    at_ns = round(fault.at_s * _NS)
    match fault:
        case WorkerKill():
            return [SimFault(at_ns, kill=worker)]
        case WorkerPause():
            return [SimFault(at_ns, pause=Pause(worker, at_ns + round(fault.duration_s * _NS)))]
        case WorkerSlowdown():  # stopped for `share` of every period: on the average so much slower
            factor = 1 / (1 - fault.share)
            end_ns = at_ns + round(fault.duration_s * _NS)
            return [
                SimFault(at_ns, slowdown=Slowdown(worker, factor)),
                SimFault(end_ns, slowdown=Slowdown(worker, 1 / factor)),
            ]


def _end_s(fault: WorkerKill | WorkerPause | WorkerSlowdown) -> float | None:
    return None if isinstance(fault, WorkerKill) else fault.at_s + fault.duration_s


def _worker(cell: Cell, fault: WorkerKill | WorkerPause | WorkerSlowdown, index: int) -> str:
    names = [slot.name for slot in workers_of(cell)]
    if fault.worker not in names:
        raise ConfigError(
            f"cell {cell.name}: faults[{index}].worker: {fault.worker!r} is none of {', '.join(names)}"
        )
    return fault.worker


def _row(fault: LinkFault | ProcessFault, begin_s: float, end_s: float | None) -> dict[str, Any]:
    begin_ns, end_ns = round(begin_s * _NS), None if end_s is None else round(end_s * _NS)
    return {
        "fault": fault.label,
        "kind": fault.kind,
        "target": fault.target,
        "parameters": msgspec.json.encode(fault).decode(),
        "planned_start_ns": begin_ns,
        "applied_ns": begin_ns,
        "planned_end_ns": end_ns,
        "cleared_ns": end_ns,
    }
