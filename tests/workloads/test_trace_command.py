"""`pddbench trace` as a person types it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from harness.cli.failure import exit_code
from harness.cli.trace import command
from tests.workloads import samples
from tests.workloads.prompts import TRACES, needs_traces
from workloads.errors import TraceError
from workloads.formats import open_trace


@pytest.fixture
def run():
    def running(*words: str, code: int = 0):
        result = CliRunner().invoke(command, list(words), catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    return running


def test_synth_shows_target_against_achieved_and_so_does_stats(run, tmp_path):
    out = str(tmp_path / "t.parquet")
    said = run("synth", "--preset", "report", "-n", "3000", "--seed", "1", "-o", out)
    assert "Target against achieved" in said
    assert "3,000 requests" in said
    again = run("stats", out)
    assert "Target against achieved" in again
    assert "requests above 95 %" in again


def test_a_skew_asked_for_becomes_the_target(run, tmp_path):
    out = str(tmp_path / "t.parquet")
    said = run("synth", "--preset", "report", "-n", "2000", "--bands", ".2,.1,.1,.1,.1,.2,.2", "-o", out)
    assert "band 0-90 %" in said
    assert open_trace(out).header.targets.band_shares == (0.2, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2)


@needs_traces
@pytest.mark.parametrize(
    "name",
    ["weka_le40k", "weka_le64k", "weka_subagent", "weka_prefix_tree.csv.gz", "mooncake", "tracelab", "otel"],
)
def test_every_real_trace_has_its_statistics(run, name):
    figures = json.loads(run("stats", str(TRACES / name), "--json"))
    assert figures["turns"] > 0
    assert 0 < figures["hits"][0]["request_mean"] < 1


def test_stats_answers_what_is_asked(run, tmp_path):
    (tmp_path / "m.jsonl").write_bytes(samples.mooncake())
    page = tmp_path / "m.html"
    said = run(
        "stats", str(tmp_path), "--lru", "1024", "--ttl", "60", "--long-input", "512", "--html", str(page)
    )
    assert "LRU 1,024 tokens" in said
    assert "TTL 60 s" in said
    assert "input >= 512" in said
    assert page.stat().st_size > 1_000_000


def test_repair_says_what_it_changed(run, tmp_path):
    row = json.loads(samples.mooncake().split(b"\n")[0]) | {"output_length": 0}
    (tmp_path / "m.jsonl").write_bytes(samples.lines(row))
    assert "zero_output" in run("stats", str(tmp_path))
    said = run("stats", str(tmp_path), "--repair")
    assert "1 outputs of 0 tokens became 1" in said
    assert "zero_output" not in said


def test_convert_changes_and_writes(run, tmp_path):
    source = tmp_path / "in.parquet"
    run("synth", "--preset", "report", "-n", "1000", "-o", str(source))
    out = tmp_path / "out.jsonl"
    said = run("convert", str(source), "--rate", "2", "--cv", "1.5", "--token-scale", "0.25", "-o", str(out))
    assert "(mooncake): 1,000 requests" in said
    assert open_trace(out).header.block_size == 16


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stats", "nowhere.jsonl"), "nowhere.jsonl: no such file"),
        (("stats", "preset:none"), "known presets"),
        (("stats", "preset:cold", "--format", "csv"), None),
        (("convert", "preset:mooncake-like", "--to", "azure", "-o", "x"), "azure would lose"),
        (("convert", "preset:small-engine", "-o", "x.csv"), "--to"),
        (("synth", "--preset", "report", "--mean", ".9", "-o", "x"), "go together"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(run, words, said):
    if said is None:
        run(*words)  # a preset has no format to mistake
        return
    with pytest.raises(TraceError, match=said) as caught:
        CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert exit_code(caught.value) == 2
    assert "\n" not in str(caught.value)


def test_synth_wants_one_source_of_parameters(run, tmp_path):
    assert "either a --preset or a file" in run("synth", "-o", str(tmp_path / "x"), code=2)


def test_presets_and_formats_are_listed(run):
    assert "small-engine" in run("presets")
    formats = run("formats")
    for name in samples.SAMPLES:
        assert name in formats
    assert "reads, writes" in formats
