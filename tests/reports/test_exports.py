"""What other tools get: every request once, in their words and units."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from harness.cli.export import command
from reports.errors import ReportError
from reports.export_table import EXPORTS, export
from reports.metric_table import metric
from reports.run import Run
from reports.sides import open_sides
from workloads.readers.aiperf import read
from workloads.readers.options import ReadOptions


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_format_is_written_and_named(two_modes: Run, tmp_path: Path) -> None:
    for form, (_, name, doc) in EXPORTS.items():
        path = export(two_modes, form, "pdd", 0, tmp_path / form)
        assert path.name == name
        assert path.stat().st_size > 0
        assert doc
    with pytest.raises(ReportError, match="--format xml: unknown; known: aiperf"):
        export(two_modes, "xml", "pdd", 0, tmp_path)
    with pytest.raises(ReportError, match="has no repetition 7; repetitions: 0, 1"):
        export(two_modes, "csv", "pdd", 7, tmp_path)


def test_aiperf_records_hold_the_same_latencies(two_modes: Run, tmp_path: Path) -> None:
    records = lines(export(two_modes, "aiperf", "pdd", 0, tmp_path))
    rows = two_modes.table("requests", "pdd", 0).to_pylist()
    assert len(records) == len(rows)
    assert [r["metadata"]["benchmark_phase"] for r in records].count("warmup") == 1
    for record, row in zip(records, rows, strict=True):
        ttft = record["metrics"]["time_to_first_token"]
        assert ttft == {"value": (row["first_token_ns"] - row["sent_ns"]) / 1e6, "unit": "ms"}
        assert record["metrics"]["output_sequence_length"]["value"] == row["output_tokens"]
        assert record["metadata"]["conversation_id"] == row["session_id"]


def test_aiperf_records_are_read_back_as_a_trace(two_modes: Run, tmp_path: Path) -> None:
    trace = read(export(two_modes, "aiperf", "pdd", 0, tmp_path), ReadOptions())
    assert trace is not None


def test_failures_carry_their_error(with_faults: Run, tmp_path: Path) -> None:
    records = lines(export(with_faults, "aiperf", "pdd", 0, tmp_path))
    failed = [r for r in records if r["error"] is not None]
    assert failed
    assert all("error_isl" in r["metrics"] and r["error"]["message"] for r in failed)


def test_vllm_summary_agrees_with_the_metrics(two_modes: Run, tmp_path: Path) -> None:
    (found,) = lines_of_json(export(two_modes, "vllm-bench", "pdd", 0, tmp_path))
    frame = open_sides([(two_modes, "pdd")]).sides[0].frame
    ttft = metric("ttft").sample(frame.chosen(frame.reps == 0))
    assert found["p99_ttft_ms"] == ttft.quantile(0.99)
    assert found["median_ttft_ms"] == ttft.quantile(0.5)
    assert found["completed"] == ttft.size
    assert found["request_throughput"] == pytest.approx(ttft.size / found["duration"])
    assert {"mean_tpot_ms", "p99_itl_ms", "median_e2el_ms", "total_token_throughput"} <= set(found)


def lines_of_json(path: Path) -> list[dict]:
    return [json.loads(path.read_text())]


def test_csv_has_client_router_and_derived_columns(two_modes: Run, tmp_path: Path) -> None:
    with export(two_modes, "csv", "pdd", 0, tmp_path).open() as file:
        rows = list(csv.DictReader(file))
    frame = open_sides([(two_modes, "pdd")]).sides[0].frame
    gaps = metric("handoff_gap").sample(frame.chosen(frame.reps == 0)).values
    assert np.allclose(sorted(float(r["handoff_gap_ms"]) for r in rows if r["handoff_gap_ms"]), gaps)
    assert {r["router_pipeline"] for r in rows} == {"direct", "relayed"}


def test_spans_nest_under_the_request(two_modes: Run, tmp_path: Path) -> None:
    spans = [
        span
        for line in lines(export(two_modes, "otlp", "pdd", 0, tmp_path))
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    roots = {span["spanId"]: span for span in spans if "parentSpanId" not in span}
    rows = two_modes.table("requests", "pdd", 0, ["phase"])["phase"].to_pylist()
    assert len(roots) == rows.count("measure")
    assert len({span["spanId"] for span in spans}) == len(spans)
    names = {span["name"] for span in spans}
    assert names == {
        "request",
        "prefill",
        "kv_transfer relay",
        "kv_transfer main",
        "relay_decode",
        "handoff",
        "main_decode",
    }
    for span in spans:
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
        if "parentSpanId" in span:
            assert span["traceId"] == roots[span["parentSpanId"]]["traceId"]


def test_export_command_writes_every_cell_and_repetition(two_modes: Run, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(two_modes.path), "--format", "aiperf", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(result.output.split()) == 4
    assert (tmp_path / "xdc/rep-1/profile_export.jsonl").exists()
