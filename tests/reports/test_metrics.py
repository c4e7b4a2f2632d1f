"""Each metric against its formula done the slow way on the rows of a run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_run import FakeRun

from reports.columns import Columns
from reports.frame import Frame
from reports.metric import PerRep, PerRequest, PerToken, Share
from reports.metric_table import METRICS, formula, metric
from reports.run import Run
from reports.schema import REQUESTS, TABLES
from reports.sides import open_sides
from reports.slo import good_requests, objective
from reports.token_scan import scan_tokens
from reports.writer import TableWriter


@pytest.fixture(scope="module")
def frame(two_modes: Run) -> Frame:
    return open_sides([(two_modes, "pdd")]).sides[0].frame


@pytest.fixture(scope="module")
def rows(two_modes: Run) -> pd.DataFrame:
    requests = two_modes.table("requests", "pdd").to_pandas()
    handoffs = two_modes.table("handoffs", "pdd").to_pandas()
    joined = requests.merge(handoffs, on="request_id", suffixes=("", "_router"))
    return joined[joined["phase"] == "measure"]


def test_every_metric_is_documented_and_names_real_columns() -> None:
    for name in METRICS:
        known = metric(name)
        assert known.name == name
        assert len(formula(name).splitlines()) >= 3, name
        assert known.title
        for need in known.needs:
            table, _, column = need.partition(".")
            assert column in TABLES[table].arrow().names, need


@pytest.mark.parametrize("name", [n for n in METRICS if not isinstance(metric(n), PerRep)])
def test_formula_reads_the_columns_it_declares(two_modes: Run, name: str) -> None:
    columns = Columns(two_modes, "pdd")
    fresh = Frame(columns, slo={}, windows_s={0: 1.0, 1: 1.0}, cost_per_hour=1.0)
    match known := metric(name):
        case PerRequest():
            known.observe(fresh)
        case PerToken():
            known.pool(fresh)
        case Share():
            known.terms(fresh)
    assert fresh.accessed <= set(known.needs)


def test_latencies_equal_the_rows(frame: Frame, rows: pd.DataFrame) -> None:
    ok = rows[rows["status"] == "ok"]
    for name, truth in {
        "ttft": ok["first_token_ns"] - ok["sent_ns"],
        "ttft_intended": ok["first_token_ns"] - ok["intended_ns"],
        "e2e_latency": ok["last_token_ns"] - ok["sent_ns"],
        "prefill_time": ok["prefill_done_ns"] - ok["prefill_start_ns"],
        "main_transfer_time": ok["main_transfer_done_ns"] - ok["main_transfer_start_ns"],
    }.items():
        sample = metric(name).sample(frame)
        assert np.array_equal(sample.values, np.sort(truth.to_numpy()) / 1e6), name
    several = ok[ok["output_tokens"] > 1]
    truth = (several["last_token_ns"] - several["first_token_ns"]) / (several["output_tokens"] - 1) / 1e6
    assert np.allclose(metric("tpot").sample(frame).values, np.sort(truth))


def test_token_metrics_equal_the_offsets(frame: Frame, rows: pd.DataFrame) -> None:
    itl, worst, gap = [], [], []
    for _, row in rows[rows["status"] == "ok"].iterrows():
        steps = np.diff(row["token_offsets_ns"])
        itl += list(steps)
        if len(steps):
            worst.append(steps.max())
        if not math.isnan(row["switch_index"]):
            gap.append(steps[int(row["switch_index"]) - 1])
    assert len(gap) > 10
    for name, truth in (("max_itl", worst), ("handoff_gap", gap)):
        assert np.array_equal(metric(name).sample(frame).values, np.sort(truth) / 1e6), name
    assert np.array_equal(metric("itl").pool(frame).values, np.sort(itl) / 1e6)


def test_binned_token_latencies_are_within_their_stated_error(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = frame.tokens.itl
    monkeypatch.setattr("reports.token_scan.EXACT_TOKENS", 0)
    switch = frame.columns.number("handoffs", "switch_index")
    binned = scan_tokens(frame.columns, switch, frame.groups, frame.group_count, frame.ok).itl
    assert binned.size == exact.size
    for q in (0.01, 0.5, 0.99, 0.999):
        assert binned.quantile(q) == pytest.approx(exact.quantile(q), rel=0.001)
    assert np.array_equal(np.bincount(binned.groups, binned.counts), np.bincount(exact.groups))


def test_shares_and_rates_equal_the_rows(frame: Frame, rows: pd.DataFrame) -> None:
    window = sum((rep["end_ns"].max() - rep["intended_ns"].min()) / 1e9 for _, rep in rows.groupby("rep"))
    relayed = rows["pipeline"] == "relayed"
    good = (rows["first_token_ns"] - rows["sent_ns"] <= 400e6) & (
        (rows["last_token_ns"] - rows["first_token_ns"]) <= 40e6 * (rows["output_tokens"] - 1).clip(lower=0)
    )
    truth = {
        "relayed_share": relayed.mean(),
        "relay_token_share": rows["relay_tokens"].fillna(0).sum() / rows["output_tokens_router"].sum(),
        "prefix_hit": rows["cached_tokens"].sum() / rows["prompt_tokens"].sum(),
        "prefix_hit_per_request": (rows["cached_tokens"] / rows["prompt_tokens"]).mean(),
        "wan_kv_bytes": (rows["main_kv_bytes"].fillna(0) + rows["handoff_bytes"].fillna(0)).mean(),
        "error_rate": (rows["status"] != "ok").mean(),
        "request_throughput": (rows["status"] == "ok").sum() / window,
        "output_token_throughput": rows["output_tokens"].sum() / window,
        "slo_attainment": good.mean(),
        "request_goodput": good.sum() / window,
        "bcr": good.sum() / window * 3600 / 83.0,
    }
    for name, value in truth.items():
        assert metric(name).statistic(frame).point() == pytest.approx(value), name


def test_kv_that_stays_in_its_datacenter_does_not_cross_the_wan(frame: Frame) -> None:
    local = Frame(frame.columns, slo=frame.slo, windows_s=frame.windows_s, has_wan=False)
    assert metric("wan_kv_bytes").statistic(local).point() == 0.0


def test_unreported_hits_are_null_not_zero(tmp_path: Path) -> None:
    run = FakeRun(cells=("pdd",), sessions=2, turns=2, reps=1).write(tmp_path / "run")
    rows = run.table("requests").drop_columns(["cell", "rep"]).to_pylist()
    for row in rows:
        row["cached_tokens"] = None
    with TableWriter(tmp_path / "run", REQUESTS, cell="pdd", rep=1, shard="x") as out:
        for row in rows:
            out.write({**row, "request_id": row["request_id"] + "x"})
    frame = open_sides([(Run.open(tmp_path / "run"), "pdd")]).sides[0].frame
    assert metric("prefix_hit").statistic(frame.chosen(frame.reps == 1)).point() is None
    assert metric("prefix_hit").statistic(frame.chosen(frame.reps == 0)).point() is not None


def test_failures_count_as_infinite_beside_those_of_successes(with_faults: Run) -> None:
    frame = open_sides([(with_faults, "xdc")]).sides[0].frame
    ttft = metric("ttft")
    failed = int(frame.failed.sum())
    assert failed
    assert np.isfinite(ttft.sample(frame).values).all()
    assert np.isinf(ttft.sample_with_failures(frame).values).sum() == failed


def test_objectives_are_named_by_metric_and_unit(frame: Frame) -> None:
    assert objective("handoff_gap_ms").name == "handoff_gap"
    with pytest.raises(ValueError, match=r"slo\.ttft: no such objective"):
        objective("ttft")
    assert good_requests(Frame(frame.columns, slo={}, windows_s={})) is None


def test_warm_up_is_kept_but_never_measured(two_modes: Run, frame: Frame) -> None:
    phases = two_modes.table("requests", "pdd")["phase"].to_pylist()
    assert phases.count("warmup") == 2
    assert len(frame) == phases.count("measure")
