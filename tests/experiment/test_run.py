"""`pddbench run` with real processes: whole, interrupted, and killed at the worst moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pytest

from harness.experiment.decision_replay import replay_decisions
from reports.run import Run
from reports.runinfo import RunState
from tests.experiment.launch import run_command

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

EXPERIMENT = """
name = "small"
seed = 3
[workload]
source = "preset:small-engine"
sessions = 6
hit_tolerance_points = 100.0
[cluster]
max_sequences = 32
[load]
keep_output_ids = true
[load.limits]
duration_s = {duration_s}
drain_s = 5.0
[link]
driver = "relay"
[[cells]]
name = "xdc"
mode = "xdc"
[[cells]]
name = "pdd"
mode = "pdd"
policy.routing.relay_bound_ms = 20.0
"""


def start(tmp_path: Path, duration_s: float) -> subprocess.Popen[str]:
    started = run_command(tmp_path, EXPERIMENT.format(duration_s=duration_s), "--json")
    return subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_dir(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "runs").iterdir()
    return found


def wait_for_children(process: subprocess.Popen[str], word: str) -> list[psutil.Process]:
    """The runner's descendants, once one of them runs `word`."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        children = psutil.Process(process.pid).children(recursive=True)
        for child in children:
            try:
                if any(word in part for part in child.cmdline()):
                    return children
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)
    raise AssertionError(f"{word} never started")


def wait_gone(processes: list[psutil.Process], timeout_s: float = 20) -> None:
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    assert not alive, f"left behind: {alive}"


def rows_of(run: Run) -> int:
    return run.table("requests", columns=["request_id"]).num_rows


def wait_for_rows(tmp_path: Path) -> None:
    """Until the first requests are on disk."""
    limit = time.monotonic() + 90
    while time.monotonic() < limit:
        if rows_of(Run.open(run_dir(tmp_path))) > 0:
            return
        time.sleep(0.2)
    raise AssertionError("no request was recorded")


def test_a_run_is_whole_exact_and_replayable(tmp_path: Path) -> None:
    process = start(tmp_path, 12)
    children = wait_for_children(process, "harness.loadgen")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    wait_gone(children)
    told = json.loads(out)
    run = Run.open(Path(told["run"]))
    assert run.info.state is RunState.COMPLETE
    assert not run.partial
    assert Path(told["report"]).stat().st_size > 100_000
    requests = run.table("requests", columns=["trace_request", "status", "output_ids"]).to_pylist()
    assert {r["status"] for r in requests} == {"ok"}
    answers: dict[str, set[tuple[int, ...]]] = {}
    for r in requests:
        answers.setdefault(r["trace_request"], set()).add(tuple(r["output_ids"]))
    common = list(answers.values())
    assert len(requests) > len(common), "no request was replayed in both cells"
    assert all(len(a) == 1 for a in common), "the modes answered differently"
    handoffs = run.table("handoffs", "pdd")
    assert pc.sum(pc.equal(handoffs["pipeline"].cast("string"), "relayed")).as_py() > 0
    assert pc.sum(run.table("handoffs", "xdc")["main_kv_bytes"]).as_py() > 0
    assert run.table("link_samples").num_rows > 10
    assert run.table("worker_samples").num_rows > 10
    for replayed in replay_decisions(run):
        assert replayed.differs is None
        assert replayed.events > 100


def test_ctrl_c_drains_and_reports(tmp_path: Path) -> None:
    process = start(tmp_path, 60)
    children = wait_for_children(process, "harness.loadgen")
    wait_for_rows(tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    wait_gone(children)
    assert json.loads(out)["state"] == "interrupted"
    assert rows_of(Run.open(run_dir(tmp_path))) > 0


def test_a_killed_load_generator_leaves_what_it_recorded(tmp_path: Path) -> None:
    process = start(tmp_path, 60)
    children = wait_for_children(process, "harness.loadgen")
    wait_for_rows(tmp_path)
    victim = next(c for c in psutil.Process(process.pid).children() if "harness.loadgen" in c.cmdline())
    victim.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.strip().splitlines()[-1].startswith("error: cell xdc: load generator: ")
    wait_gone(children)
    command = [sys.executable, "-m", "harness.cli", "report", str(run_dir(tmp_path))]
    report = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert report.returncode in (0, 3), report.stderr
    assert "partial" in report.stdout.lower()
    assert rows_of(Run.open(run_dir(tmp_path))) > 0


def test_nothing_outlives_a_killed_runner(tmp_path: Path) -> None:
    process = start(tmp_path, 60)
    children = wait_for_children(process, "harness.loadgen")
    time.sleep(1)
    children = psutil.Process(process.pid).children(recursive=True) or children
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)
    wait_gone(children)
    assert Run.open(run_dir(tmp_path)).partial


def test_a_transport_that_a_relay_cannot_carry_is_refused(tmp_path: Path) -> None:
    text = EXPERIMENT.format(duration_s=5).replace("[cluster]", '[cluster]\ntransport = "nixl"')
    ended = subprocess.run(
        run_command(tmp_path, text), capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 1
    assert "transport 'nixl' has connections of its own, which the relay does not carry" in ended.stderr
