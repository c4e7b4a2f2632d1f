"""`pddbench sim`: the experiment file's cells into the tables that a live run writes, twice the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from harness.cli.sim import command
from harness.experiment.config import ConfigError, load_experiment, resolve
from harness.experiment.simulated import run_simulated
from harness.experiment.simulated_cell import sim_cell
from reports.run import Run

_EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
_ABLATIONS = ("collapse", "drc", "odd-traffic", "handoff-payload", "handoff-load", "scarcity")
_TEXT = """
name = "small"
seed = 3
[workload]
source = "preset:small-engine"
sessions = 4
[cluster]
engine = "emulated"
model = "llama-3-8b"
[sim]
devices = "h100x1"
byte_scale = 0.1
[link]
profile = "quickstart"
[slo]
ttft_ms = 2000
[[cells]]
name = "xdc"
mode = "xdc"
[[cells]]
name = "pdd"
mode = "pdd"
"""


def simulate(folder: Path, text: str = _TEXT) -> Path:
    folder.mkdir(parents=True)
    (folder / "small.toml").write_text(text)
    run_dir = folder / "run"
    run_simulated(load_experiment(folder / "small.toml"), run_dir, Console(quiet=True), jobs=1)
    return run_dir


def digests(run_dir: Path) -> dict[str, str]:
    return {
        str(path.relative_to(run_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run_dir.rglob("*.parquet"))
    }


def test_a_simulated_run_has_the_tables_of_a_live_one_and_reads_as_one(tmp_path: Path) -> None:
    run = Run.open(simulate(tmp_path / "a"))
    assert run.info.simulated
    assert run.info.load_driver == "sim"
    requests, handoffs = run.table("requests", "pdd", 0), run.table("handoffs", "pdd", 0)
    assert len(requests) == len(handoffs) > 20
    assert set(requests["status"].to_pylist()) == {"ok"}
    assert all(
        len(o) == n
        for o, n in zip(
            requests["token_offsets_ns"].to_pylist(), requests["output_tokens"].to_pylist(), strict=True
        )
    )
    assert sorted(requests["request_id"].to_pylist()) == sorted(handoffs["request_id"].to_pylist())
    assert len(run.table("decisions", "pdd", 0)) > 5 * len(requests)
    assert len(run.table("link_samples", "pdd", 0)) > 1
    assert {w["role"] for w in run.table("worker_samples", "pdd", 0).to_pylist()} == {
        "prefill",
        "relay_decode",
        "main_decode",
    }


def test_two_runs_of_one_seed_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    first, second = digests(simulate(tmp_path / "a")), digests(simulate(tmp_path / "b"))
    assert first == second
    assert len(first) >= 10


def test_the_command_gives_the_same_bits_however_many_cells_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(_TEXT)
    found = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        arguments = [str(tmp_path / "small.toml"), "--out", str(out), "--jobs", jobs, "--no-report", "--json"]
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code == 0, done.output
        found.append(digests(next(out.iterdir())))
    assert found[0] == found[1]
    assert len(found[0]) >= 10


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    other = _TEXT.replace("seed = 3", "seed = 4")
    assert digests(simulate(tmp_path / "a")) != digests(simulate(tmp_path / "b", other))


def test_faults_strike_and_are_recorded(tmp_path: Path) -> None:
    text = _TEXT.replace(
        "[[cells]]",
        '[[faults]]\nkind = "partition"\nat_s = 1.0\nduration_s = 5.0\n'
        '[[faults]]\nkind = "worker_kill"\nat_s = 2.0\nworker = "main-0"\n[[cells]]',
        1,
    ).replace('model = "llama-3-8b"', 'model = "llama-3-8b"\nmain = 2')
    run_dir = simulate(tmp_path / "a", text)
    rows = pq.read_table(next((run_dir / "faults").rglob("*.parquet"))).to_pylist()
    assert {row["kind"] for row in rows} == {"partition", "worker_kill"}
    requests = Run.open(run_dir).table("requests", "xdc", 0).to_pylist()
    assert {row["status"] for row in requests} == {"ok"}
    slowest = max(row["first_token_ns"] - row["sent_ns"] for row in requests)
    assert slowest > 2e9, "somebody waited for the line"


def test_a_model_without_a_cost_profile_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(_TEXT.replace("llama-3-8b", "tiny"))
    cell = resolve(load_experiment(tmp_path / "small.toml"))[0]
    with pytest.raises(ConfigError, match="known: deepseek-v3"):
        sim_cell(cell, requests=0)


@pytest.mark.parametrize("name", _ABLATIONS)
def test_every_shipped_ablation_resolves_for_the_simulator(name: str) -> None:
    for cell in resolve(load_experiment(_EXPERIMENTS / f"{name}.toml")):
        made = sim_cell(cell, requests=0)
        assert made.workers
