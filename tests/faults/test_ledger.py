"""What a killed run has left is ended at the next start, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from harness.faults import Ledger, sweep
from harness.faults.ledger import _started

OWNER = (
    "import subprocess, sys, time; from pathlib import Path\n"
    "from harness.faults import Ledger\n"
    "ledger = Ledger(Path(sys.argv[1]))\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],\n"
    "    start_new_session=True, stdout=subprocess.DEVNULL)\n"
    "ledger.record('worker', child.pid)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def owner(tmp_path):
    """A run that has started a worker."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        process.worker = int(process.stdout.readline())
        yield process
        process.kill()
        if _started(process.worker):
            os.kill(process.worker, signal.SIGKILL)


def test_a_live_run_is_left_alone(owner, tmp_path):
    assert sweep(tmp_path) == []
    assert _started(owner.worker)


def test_a_killed_run_s_processes_are_ended_also_when_stopped(owner, tmp_path):
    os.kill(owner.worker, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    assert [entry.name for entry in sweep(tmp_path)] == ["worker"]
    assert _started(owner.worker) is None
    assert sweep(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_pid_that_was_given_again_is_left_alone(owner, tmp_path):
    owner.kill()
    owner.wait()
    (path,) = tmp_path.iterdir()
    started = _started(owner.worker)
    path.write_text(path.read_text().replace(f'"started":{started}', f'"started":{started - 1}'))
    assert sweep(tmp_path) == []
    assert _started(owner.worker) == started


def test_a_ledger_cut_short_by_the_kill_is_still_read(owner, tmp_path):
    owner.kill()
    owner.wait()
    (path,) = tmp_path.iterdir()
    with path.open("a") as file:
        file.write('{"name":"half')
    assert [entry.name for entry in sweep(tmp_path)] == ["worker"]


def test_closing_removes_the_ledger(tmp_path):
    ledger = Ledger(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    ledger.close()
    ledger.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_has_ended_is_not_recorded(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    ledger = Ledger(tmp_path)
    ledger.record("gone", process.pid)
    (path,) = tmp_path.iterdir()
    assert len(path.read_text().splitlines()) == 1
    ledger.close()
