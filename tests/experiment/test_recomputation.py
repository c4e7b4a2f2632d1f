"""The verdict on recomputation: the workers' counters against what the policy asked of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.experiment.cell_run import CellRecord
from harness.experiment.config import Experiment, read, resolve
from harness.experiment.recomputation import recomputed
from harness.experiment.verdict import judge
from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.config import MODES
from harness.policy.core import Policy
from harness.policy.journal import decision_row
from harness.policy.roles import HandoffMode, Role, TransferPurpose
from reports.run import Run
from reports.schema import DECISIONS, WORKER_SAMPLES
from reports.writer import TableWriter
from tests.reports.fake_run import FakeRun

PROMPT, TOKENS, RELAYED = 1000, 50, 20
P_HIT, MD_HIT = 300, 200
ASKED = {"prefill-0": PROMPT - 1 - P_HIT, "relay-0": 0, "main-0": RELAYED}
"""Of one relayed request, besides tokens decoded: MD computes the prompt's last id and all relayed ids, and
samples on from the last of them."""


class Story:
    """A policy that is told one request's life; its actions name the work that ends next."""

    def __init__(self) -> None:
        preset = MODES["pdd"].policy
        routing = msgspec.structs.replace(preset.routing, relay_bound_ms=0.0)
        self._policy = Policy(msgspec.structs.replace(preset, routing=routing))
        self.rows: list[dict[str, Any]] = []
        self.actions: list[act.Action] = []
        for name, role, site in (
            ("prefill-0", Role.PREFILL, "A"),
            ("relay-0", Role.RELAY_DECODE, "A"),
            ("main-0", Role.MAIN_DECODE, "B"),
        ):
            self.tell(ev.WorkerJoined(name, role, site, 8, 1000.0))
        self.tell(ev.LinkMeasured(1e6, 1_000_000))
        self.tell(ev.RequestArrived("r", "s", PROMPT, TOKENS))

    def tell(self, event: ev.Event) -> None:
        now_ns = len(self.rows)
        actions = self._policy.handle(now_ns, event)
        self.rows.append(decision_row(now_ns, now_ns, event, actions))
        self.actions += actions

    def work(self, kind: type[Any], **like: object) -> int:
        """The latest work of this kind."""
        for action in reversed(self.actions):
            if isinstance(action, kind) and all(getattr(action, k) == v for k, v in like.items()):
                return int(action.work)
        raise AssertionError(f"no {kind.__name__} {like} among {self.actions}")


@pytest.fixture
def story() -> Story:
    """Up to the prefill."""
    told = Story()
    told.tell(ev.Opened("r", told.work(act.Open, worker="relay-0"), PROMPT - 1))
    told.tell(ev.Opened("r", told.work(act.Open, worker="main-0"), MD_HIT))
    return told


def relayed(story: Story) -> Story:
    """The whole life: P, RLD from its own cache, MD after its copy, one-shot."""
    story.tell(ev.PrefillDone("r", story.work(act.Prefill), P_HIT, PROMPT - 1 - P_HIT))
    relay = story.work(act.Decode, worker="relay-0")
    for i in range(RELAYED):
        story.tell(ev.TokensDecoded("r", relay, i, 1))
    copy = story.work(act.Transfer, purpose=TransferPurpose.MAIN)
    story.tell(ev.TransferDone("r", copy, 800_000))
    main = story.work(act.Decode, worker="main-0")
    for i in range(RELAYED, TOKENS):
        story.tell(ev.TokensDecoded("r", main, i, 1, "length" if i == TOKENS - 1 else None))
    return story


def judged(folder: Path, story: Story, computed: dict[str, int | None]) -> list[str]:
    """Verdict where the workers have computed so much besides the tokens they decoded."""
    FakeRun().info([]).write(folder)
    with TableWriter(folder, DECISIONS, cell="c", rep=0, shard="router") as writer:
        for row in story.rows:
            writer.write(row)
    with TableWriter(folder, WORKER_SAMPLES, cell="c", rep=0, shard="router") as writer:
        for t_ns, share in ((1, 0.0), (2, 1.0)):
            for worker, positions in computed.items():
                decoded = 10 + t_ns
                counted = None if positions is None else int(share * positions) + decoded
                sample = {"worker": worker, "role": "x", "cluster": "A", "decoded_tokens": decoded}
                writer.write({"t_ns": t_ns, "computed_tokens": counted, **sample})
    return recomputed(Run.open(folder), "c", 0)


def test_the_story_is_of_a_one_shot_handoff(story: Story) -> None:
    assert MODES["pdd"].policy.handoff.mode is HandoffMode.ONE_SHOT
    (main,) = [a for a in relayed(story).actions if isinstance(a, act.Decode) and a.worker == "main-0"]
    assert (main.p0, main.first) == (PROMPT - 1, RELAYED)


def test_workers_that_computed_what_they_were_asked_for_pass(tmp_path: Path, story: Story) -> None:
    assert judged(tmp_path, relayed(story), ASKED) == []


@pytest.mark.parametrize("worker", ASKED)
def test_one_position_more_is_told_with_the_worker(tmp_path: Path, story: Story, worker: str) -> None:
    (line,) = judged(tmp_path, relayed(story), {**ASKED, worker: ASKED[worker] + 1})
    assert line == (
        f"recomputed: {worker} computed {ASKED[worker] + 1} positions of contexts, the policy asked for "
        f"{ASKED[worker]}: 1 were computed although they were held"
    )


def test_a_prefill_whose_end_was_not_told_may_have_computed_all(tmp_path: Path, story: Story) -> None:
    assert judged(tmp_path / "within", story, {"prefill-0": PROMPT - 1}) == []
    assert len(judged(tmp_path / "beyond", story, {"prefill-0": PROMPT})) == 1


def test_an_engine_that_does_not_count_is_not_judged(tmp_path: Path, story: Story) -> None:
    assert judged(tmp_path, relayed(story), dict.fromkeys(ASKED)) == []


def test_it_makes_the_repetition_invalid(tmp_path: Path, story: Story) -> None:
    judged(tmp_path, relayed(story), {"main-0": RELAYED + 7})
    experiment = read(Experiment, {"name": "x", "cells": [{"name": "c", "mode": "pdd"}]}, "x")
    verdict = judge(CellRecord(resolve(experiment)[0], 0, 0), Run.open(tmp_path))
    assert not verdict.valid
    assert [r for r in verdict.reasons if r.startswith("recomputed: main-0 computed 27 positions")]


def test_without_a_log_of_decisions_nothing_is_said(tmp_path: Path) -> None:
    FakeRun().info([]).write(tmp_path)
    assert recomputed(Run.open(tmp_path), "c", 0) == []
