"""`pddbench run` when a process of the cluster dies, or Ctrl-C comes before anything is under load."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.faults.ledger import default_folder
from reports.run import Run
from reports.runinfo import RunState
from tests.experiment.launch import run_command
from tests.experiment.test_run import run_dir, wait_for_children, wait_for_rows, wait_gone

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

EXPERIMENT = """
name = "broken"
seed = 3
[workload]
source = "preset:small-engine"
sessions = 6
hit_tolerance_points = 100.0
[cluster]
prefill = 2
max_sequences = 32
[load.limits]
duration_s = {duration_s}
drain_s = 20.0
[link]
driver = "relay"
[[cells]]
name = "xdc"
mode = "xdc"
"""


def start(tmp_path: Path, duration_s: float) -> subprocess.Popen[str]:
    started = run_command(tmp_path, EXPERIMENT.format(duration_s=duration_s), "--json")
    return subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children_by(process: subprocess.Popen[str], fits: Callable[[str], bool]) -> list[psutil.Process]:
    return [c for c in psutil.Process(process.pid).children() if fits(" ".join(c.cmdline()))]


@pytest.mark.parametrize(
    ("victim", "said"),
    [
        ("processes.router", "error: cell xdc: the router ended under load: "),
        ("adapters.links.relay", "error: cell xdc: the link failed under load: "),
    ],
)
def test_without_router_or_link_the_run_fails_at_once_in_one_line(
    tmp_path: Path, victim: str, said: str
) -> None:
    process = start(tmp_path, 600)
    everyone = wait_for_children(process, "harness.loadgen")
    wait_for_rows(tmp_path)
    (found,) = children_by(process, lambda command: victim in command)
    found.kill()
    out, err = process.communicate(timeout=120)  # far less than the load would go on against nothing
    assert process.returncode == 1, err
    assert out == ""
    assert err.strip().splitlines()[-1].startswith(said), err
    wait_gone(everyone)
    run = Run.open(run_dir(tmp_path))
    assert run.info.state is RunState.FAILED
    assert run.table("requests", columns=["request_id"]).num_rows > 0


def test_a_run_whose_worker_died_of_itself_is_invalid_even_if_every_request_survived(tmp_path: Path) -> None:
    process = start(tmp_path, 12)
    everyone = wait_for_children(process, "harness.loadgen")
    wait_for_rows(tmp_path)
    # Of two prefill workers, whichever: the other one takes over.
    pids = [json.loads(line) for line in ledger_of(process)]
    psutil.Process(next(p["pid"] for p in pids if p["name"] == "prefill-1")).kill()
    out, err = process.communicate(timeout=150)
    assert process.returncode == 3, err
    wait_gone(everyone)
    told = json.loads(out)
    assert told["state"] == "complete"
    reasons = [r for rep in Run.open(Path(told["run"])).info.reps for r in rep.validity.reasons]
    assert any(reason.startswith("prefill-1 ended under load: ") for reason in reasons), reasons


def ledger_of(process: subprocess.Popen[str]) -> list[str]:
    (path,) = default_folder().glob(f"{process.pid}-*.jsonl")
    return path.read_text().splitlines()


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_the_cluster_starts_ends_the_run_and_every_process(tmp_path: Path, presses: int) -> None:
    process = start(tmp_path, 60)
    everyone = wait_for_children(process, "processes.worker")
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    out, err = process.communicate(timeout=90)
    # The second press may find the runner past its own handlers, in its last words or the interpreter's end.
    assert process.returncode in (130, -signal.SIGINT), err
    wait_gone(everyone)
    if presses == 1 or out:
        assert json.loads(out)["state"] == "interrupted"
    assert Run.open(run_dir(tmp_path)).info.state is RunState.INTERRUPTED


def test_a_model_that_is_not_there_is_an_input_error_in_one_line(tmp_path: Path) -> None:
    text = EXPERIMENT.format(duration_s=5).replace("[cluster]", '[cluster]\nmodel = "nowhere.gguf"')
    done = subprocess.run(
        run_command(tmp_path, text), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    said = done.stderr.strip().splitlines()[-1]
    assert "model file nowhere.gguf does not exist; known: 'tiny'" in said
    assert Run.open(run_dir(tmp_path)).info.state is RunState.FAILED
