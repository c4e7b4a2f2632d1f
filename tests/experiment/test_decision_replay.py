"""`pddbench replay` of a log that is whole, of another policy, damaged, and of none at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.experiment.decision_replay import Replayed, replay_decisions
from harness.policy import events as ev
from harness.policy.config import MODES
from harness.policy.core import Policy
from harness.policy.journal import decision_row
from harness.policy.roles import Role
from reports.errors import ReportError
from reports.run import Run
from reports.schema import DECISIONS
from reports.writer import TableWriter
from tests.reports.fake_run import FakeRun

Row = dict[str, Any]
EVENTS: tuple[ev.Event, ...] = (
    ev.WorkerJoined("prefill-0", Role.PREFILL, "A", 4, 8.0),
    ev.WorkerJoined("main-0", Role.MAIN_DECODE, "B", 4, 8.0),
    ev.RequestArrived("r", "s", 10, 5),
    ev.ClientGone("r"),
)
CONFIG = {"name": "x", "cells": [{"name": "c", "mode": "xdc"}]}


def log() -> list[Row]:
    policy = Policy(MODES["xdc"].policy)
    return [decision_row(i, i, event, policy.handle(i, event)) for i, event in enumerate(EVENTS)]


def replayed(tmp_path: Path, rows: list[Row]) -> list[Replayed]:
    info = msgspec.structs.replace(FakeRun().info([]), config=CONFIG)
    info.write(tmp_path)
    if rows:
        with TableWriter(tmp_path, DECISIONS, cell="c", rep=0, shard="router") as writer:
            for row in rows:
                writer.write(row)
    return replay_decisions(Run.open(tmp_path))


def test_the_same_events_lead_to_the_same_actions(tmp_path: Path) -> None:
    assert replayed(tmp_path, log()) == [Replayed("c", 0, len(EVENTS), None)]


def test_other_actions_are_shown_with_the_event_they_follow(tmp_path: Path) -> None:
    rows = log()
    rows[2]["actions"] = "[]"
    (result,) = replayed(tmp_path, rows)
    assert result.differs is not None
    assert result.differs.startswith("event 2: ")


def test_an_event_that_cannot_be_is_a_difference(tmp_path: Path) -> None:
    rows = log()
    (result,) = replayed(tmp_path, [*rows[:3], rows[2], *rows[3:]])
    assert result.differs == "event 3: request r: arrived twice"


def test_a_damaged_event_is_named(tmp_path: Path) -> None:
    rows = log()
    rows[1]["event"] = rows[1]["event"][:20]
    with pytest.raises(ReportError, match=r"decisions of c rep 0, event 1: [^\n]+$"):
        replayed(tmp_path, rows)


def test_a_run_without_a_log_is_not_called_the_same(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no decisions were recorded"):
        replayed(tmp_path, [])
