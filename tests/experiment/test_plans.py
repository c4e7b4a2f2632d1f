"""Cache discipline: each repetition has ids of its own, and the size of the caches is reckoned with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.engine import EngineInfo
from harness.experiment.cell_run import CellRecord
from harness.experiment.config import Cell, Experiment, read, resolve
from harness.experiment.plans import PlanShelf, cache_tokens, plan_of
from harness.experiment.verdict import judge
from reports.host import probe_host, probe_versions
from reports.run import Run
from reports.runinfo import CellInfo, RunInfo, RunState
from reports.schema import REQUESTS
from reports.writer import TableWriter
from workloads.replay import ReplayPlan, ReplayTurn, read_plan
from workloads.vocabulary import Vocabulary

ENGINE = EngineInfo(
    engine="fake",
    build="",
    model="tiny",
    model_hash="",
    layout_hash="",
    vocab_size=49_152,
    first_normal_id=3,
    max_context_tokens=8192,
    max_sequences=8,
    kv_bytes_per_token=1,
)


def described(cell: Cell) -> RunInfo:
    return RunInfo(
        name="t",
        state=RunState.COMPLETE,
        started_ns=0,
        seed=1,
        config_toml="",
        config={},
        versions=probe_versions(Path(__file__).parent, ()),
        host=probe_host(),
        cells=(CellInfo(name=cell.name, mode=cell.mode, label=cell.label, reps=1),),
    )


def cell(**sections: Any) -> Cell:
    raw = {
        "name": "t",
        "workload": {"source": "preset:quickstart", "sessions": 20},
        "cells": [{"name": "pdd", "mode": "pdd"}],
        **sections,
    }
    return resolve(read(Experiment, raw, "test"))[0]


def planned(cell: Cell, rep: int = 0) -> ReplayPlan:
    return plan_of(cell, rep, seed=1, vocabulary=Vocabulary(3, 49_152), max_context_tokens=8192)


def turns(plan: ReplayPlan) -> list[ReplayTurn]:
    return [turn for session in plan.sessions for turn in session.turns]


def test_each_repetition_has_ids_of_its_own_in_the_same_structure():
    first, second = (turns(planned(cell(), rep)) for rep in (0, 1))
    assert [t.prompt_tokens for t in first] == [t.prompt_tokens for t in second]
    assert [t.expected_hit_tokens for t in first] == [t.expected_hit_tokens for t in second]
    for a, b in zip(first, second, strict=True):
        ids, others = a.new_ids(), b.new_ids()
        assert len(ids) < 16 or (ids == others).mean() < 0.1
    heads = {t.new_ids()[:64].tobytes() for t in first if t.base is None}
    assert not heads & {t.new_ids()[:64].tobytes() for t in second if t.base is None}


def test_repetitions_and_caches_have_plans_of_their_own_and_modes_share_them(tmp_path: Path):
    shelf = PlanShelf(tmp_path, seed=1)
    small = cell(workload={"source": "preset:quickstart", "sessions": 5, "cache_tokens": 900})
    naive = cell(
        workload={"source": "preset:quickstart", "sessions": 5}, cells=[{"name": "xdc", "mode": "xdc"}]
    )
    pdd = cell(workload={"source": "preset:quickstart", "sessions": 5})
    paths = [shelf.plan(c, rep, ENGINE)[0] for c, rep in ((naive, 0), (pdd, 0), (pdd, 1), (small, 0))]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
    assert read_plan(paths[3]).header.cache_tokens == 900


def test_turns_of_a_generated_session_are_those_asked_for():
    few, many = (
        cell(workload={"source": "preset:quickstart", "sessions": 60, "turns": mean}) for mean in (2, 6)
    )
    assert 1.5 < len(turns(planned(many))) / len(turns(planned(few))) < 6


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, None),
        ({"cluster": {"capacity_tokens": 5000}}, 5000),
        ({"cluster": {"capacity_tokens": 5000, "prefill": 3}}, 15000),
        (
            {
                "cluster": {"capacity_tokens": 5000, "colocated": 2, "prefill": 3},
                "cells": [{"name": "solo", "mode": "colocated"}],
            },
            10000,
        ),
        (
            {
                "cluster": {"capacity_tokens": 5000},
                "workload": {"source": "preset:quickstart", "cache_tokens": 700},
            },
            700,
        ),
    ],
)
def test_the_cache_is_that_of_the_workers_that_prefill(sections: dict[str, Any], expected: int | None):
    assert cache_tokens(cell(**sections)) == expected


def test_a_smaller_cache_implies_fewer_hits():
    whole, small = planned(cell()), planned(cell(cluster={"capacity_tokens": 2000}))
    assert small.header.expected_token_hit < whole.header.expected_token_hit - 0.05
    hits = [np.array([t.expected_hit_tokens for t in turns(plan)]) for plan in (whole, small)]
    assert (hits[1] <= hits[0]).all()


def judged(
    tmp_path: Path, cell: Cell, cached: list[int], expected: list[int], answered: int | None = None
) -> tuple[str, ...]:
    """Reasons against a repetition whose requests of 1000 tokens hit so; the first one is warm-up."""
    rows = [
        {
            **{column.name: None for column in REQUESTS.columns},
            "request_id": str(i),
            "trace_request": str(i),
            "session_id": "s",
            "turn": i,
            "phase": "measure" if i else "warmup",
            "intended_ns": i,
            "sent_ns": i,
            "status": "ok" if answered is None or i < answered else "unfinished",
            "prompt_tokens": 1000,
            "requested_tokens": 1,
            "cached_tokens": hit,
            "expected_cached_tokens": implied,
            "clock_source": "kernel",
            "merged_reads": 0,
            "retries": 0,
            "shard": "loadgen-0",
        }
        for i, (hit, implied) in enumerate(zip(cached, expected, strict=True))
    ]
    with TableWriter(tmp_path, REQUESTS, cell="pdd", rep=0, shard="loadgen-0") as table:
        for row in rows:
            table.write(row)
    described(cell).write(tmp_path)
    record = CellRecord(cell, 0, 0)
    record.plan = planned(cell).header
    return judge(record, Run.open(tmp_path)).reasons


def test_a_gap_between_achieved_and_implied_hits_makes_the_run_invalid(tmp_path: Path):
    small = cell(cluster={"capacity_tokens": 2000})
    (reason,) = judged(tmp_path, small, [0, 500, 500], [0, 900, 900])
    assert reason == (
        "prefix hit: 50.0 % achieved, 90.0 % implied by the trace in a cache of 2,000 tokens; "
        "they may differ by 2 points"
    )


def test_requests_without_a_whole_answer_make_the_run_invalid(tmp_path: Path):
    hits = [900] * 40
    assert judged(tmp_path / "few", cell(), hits, hits, answered=38) == ()
    (reason,) = judged(tmp_path / "many", cell(), hits, hits, answered=37)
    assert reason.startswith("unfinished: 3 of 40 requests had no whole answer in the end; at most 5% may")
