"""`pddbench run` on servers that know nothing of it: PDD by recomputation, and labelled so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from reports.columns import Columns
from reports.frame import Frame
from reports.metrics.wan_kv_bytes import METRIC
from reports.run import Run
from reports.runinfo import RunState
from reports.validity import judge
from tests.engines.test_openai import Served
from tests.experiment.launch import run_command

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

EXPERIMENT = """
name = "degraded"
seed = 3
[workload]
source = "preset:small-engine"
sessions = 4
max_context_tokens = 2000
token_scale = 0.4
[cluster]
engine = "openai"
model = "tiny"
max_sequences = 8
max_context_tokens = 2048
engine_options = {{ vocab_size = 514 }}
endpoints = {{ prefill = "{a}", relay = "{a}", main-0 = "{b}" }}
[load.limits]
duration_s = 8.0
drain_s = 5.0
[link]
driver = "relay"
[[cells]]
name = "pdd"
mode = "pdd"
policy.routing.relay_bound_ms = 0.0
"""


def run(tmp_path: Path, **urls: str) -> subprocess.CompletedProcess[str]:
    started = run_command(tmp_path, EXPERIMENT.format(**urls))
    return subprocess.run(started, capture_output=True, text=True, timeout=200, check=False)


def test_the_record_says_that_nothing_was_transferred(tmp_path: Path) -> None:
    a, b = Served(tmp_path / "a"), Served(tmp_path / "b")
    try:
        ended = run(tmp_path, a=a.url, b=b.url)
    finally:
        a.close()
        b.close()
    # 3: invalid, on a machine that is too busy.
    assert ended.returncode in (0, 3), ended.stderr + ended.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    found = Run.open(folder)
    assert found.info.state is RunState.COMPLETE
    engines = {e.worker: e for e in found.info.cells[0].engines}
    assert {e.engine for e in engines.values()} == {"openai"}
    assert engines["relay-0"].build == a.url
    assert engines["main-0"].build == b.url
    assert {e.details["kv_bytes_per_token"] for e in engines.values()} == {"none: recomputed by the receiver"}
    assert [c for c in judge(found).cautions if "degraded: the workers hold no KV" in c]
    handoffs = found.table("handoffs").to_pylist()
    assert any(row["relay_tokens"] for row in handoffs)
    assert {row["main_kv_bytes"] for row in handoffs} == {None}
    assert np.isnan(METRIC.terms(Frame(Columns(found, "pdd"), slo={}, windows_s={}))[0]).all()
    assert {row["cached_tokens"] for row in found.table("requests").to_pylist()} == {None}


def test_a_worker_without_an_endpoint_is_refused_before_anything_starts(tmp_path: Path) -> None:
    text = EXPERIMENT.format(a="http://a", b="http://b").replace("prefill = ", "other = ")
    ended = subprocess.run(
        run_command(tmp_path, text), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "cluster.endpoints: none for prefill-0; there are other, relay, main-0" in ended.stderr
