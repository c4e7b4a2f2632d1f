"""A run under faults: applied and cleared on time, no request lost or left hanging."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from reports.run import Run
from tests.experiment.launch import run_command

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

EXPERIMENT = """
name = "faulty"
seed = 4
[workload]
source = "preset:small-engine"
sessions = 6
hit_tolerance_points = 100.0
[load.limits]
duration_s = 14
drain_s = 40.0
[link]
driver = "relay"
[cluster]
main = 2
[[cells]]
name = "pdd"
mode = "pdd"
policy.routing.relay_bound_ms = 20.0
[[faults]]
kind = "partition"
name = "cut"
at_s = 3.0
duration_s = 2.0
[[faults]]
kind = "worker_kill"
name = "dead"
worker = "main-0"
at_s = 8.0
"""


def test_no_request_is_lost_to_a_partition_and_a_dead_main_worker(tmp_path: Path) -> None:
    started = run_command(tmp_path, EXPERIMENT, "--json")
    done = subprocess.run(started, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stderr
    run = Run.open(Path(json.loads(done.stdout)["run"]))
    requests = run.table(
        "requests", columns=["request_id", "status", "requested_tokens", "output_tokens"]
    ).to_pylist()
    assert len(requests) > 5
    for request in requests:
        assert request["status"] == "ok", request
        assert request["output_tokens"] == request["requested_tokens"], request
    faults = {row["fault"]: row for row in run.table("faults").to_pylist()}
    assert set(faults) == {"cut", "dead"}
    cut = faults["cut"]
    assert cut["error"] is None
    assert abs(cut["applied_ns"] - cut["planned_start_ns"]) < 1e9
    assert abs(cut["cleared_ns"] - cut["planned_end_ns"]) < 1e9
    retried = [h for h in run.table("handoffs").to_pylist() if h["retries"]]
    assert all(h["outcome"] == "ok" for h in retried)
