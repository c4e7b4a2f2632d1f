"""kill -9 of everything at random moments of a run: flushed rows stay readable, none counts twice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from reports.run import Run
from reports.schema import TABLES
from reports.shard import finish_abandoned
from tests.experiment.test_run import run_dir, start, wait_for_children, wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MOMENTS = 10
LATEST_S = 10.0
"""Of a moment, after the load generator has been started."""


def rows(folder: Path) -> dict[tuple[str, str, int], int]:
    """Rows of each table, cell and repetition. Opened anew each time: shards appear while a run goes on."""
    run = Run.open(folder)
    places = {(s.table, s.cell, s.rep) for table in TABLES for s in run.shards(table)}
    return {place: run.table(*place).num_rows for place in places}


def repeated(folder: Path, table: str) -> list[tuple[str, int]]:
    read = Run.open(folder).table(table, columns=["request_id"])
    counts = Counter(zip(read["cell"].to_pylist(), read["request_id"].to_pylist(), strict=True))
    return [(f"{cell} {request}", n) for (cell, request), n in counts.items() if n > 1]


def test_what_was_flushed_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    seed = int(os.environ.get("PDDBENCH_TEST_SEED", str(random.SystemRandom().randrange(1 << 30))))
    print(f"seed {seed}: set PDDBENCH_TEST_SEED to replay")
    draw = random.Random(seed)
    recorded = 0
    for number in range(MOMENTS):
        place = tmp_path / str(number)
        place.mkdir()
        process = start(place, 60)
        family = wait_for_children(process, "harness.loadgen")
        time.sleep(draw.uniform(0, LATEST_S))  # the moment is what is drawn, nothing is waited for
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        folder = run_dir(place)
        flushed = rows(folder)
        draw.shuffle(family)
        for victim in family:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
        process.communicate(timeout=20)
        wait_gone(family)
        found = rows(folder)
        assert {p: n for p, n in flushed.items() if found.get(p, 0) < n} == {}
        assert [repeated(folder, table) for table in ("requests", "handoffs")] == [[], []]
        finish_abandoned(folder)
        assert rows(folder) == {p: n for p, n in found.items() if n or p in rows(folder)}
        assert not Run.open(folder).unfinished()
        recorded += sum(found.values())
    assert recorded > MOMENTS
