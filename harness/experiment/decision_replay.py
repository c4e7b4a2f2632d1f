"""Replays the decision log of a run: the same events must lead the policy to the same actions."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from harness.experiment.config import Cell, Experiment, read, resolve
from harness.policy import events as ev
from harness.policy.core import Policy
from harness.policy.phase import IllegalEventError
from reports.errors import ReportError
from reports.run import Run

_events = msgspec.json.Decoder(ev.Event)
_actions = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Replayed:
    """One cell and repetition. `differs` says where the first difference is; None when there is none."""

    cell: str
    rep: int
    events: int
    differs: str | None


def replay_decisions(run: Run) -> list[Replayed]:
    """Every logged cell and repetition of a run, each through a policy of its own. ReportError when there is
    no log, or it cannot be read."""
    experiment = read(Experiment, run.info.config, str(run.path))
    logged = [
        (cell, rep)
        for cell in resolve(experiment)
        for rep in sorted({shard.rep for shard in run.shards("decisions", cell.name)})
    ]
    if not logged:
        raise ReportError(f"{run.path}: no decisions were recorded; run with record_decisions = true")
    return [_replay(run, cell, rep) for cell, rep in logged]


def _replay(run: Run, cell: Cell, rep: int) -> Replayed:
    policy = Policy(cell.policy)
    handled = 0
    for batch in run.batches("decisions", cell.name, rep, ["now_ns", "event", "actions"]):
        for row in batch.to_pylist():
            try:
                event = _events.decode(row["event"])
            except msgspec.DecodeError as error:
                raise ReportError(
                    f"{run.path}: decisions of {cell.name} rep {rep}, event {handled}: {error}"
                ) from error
            try:
                actions = policy.handle(row["now_ns"], event)
            except IllegalEventError as error:
                return Replayed(cell.name, rep, handled, f"event {handled}: {error}")
            if _actions.encode(actions).decode() != row["actions"]:
                return Replayed(cell.name, rep, handled, f"event {handled}: {row['event']}")
            handled += 1
    return Replayed(cell.name, rep, handled, None)
