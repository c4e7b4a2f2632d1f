"""Runs shared by the tests of reading, comparing and rendering."""

from __future__ import annotations

import os
from pathlib import Path

# Before numpy: many small matrix products, on machines that share their cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from fake_run import FakeFault, FakeRun

from reports.run import Run


@pytest.fixture(scope="session")
def two_modes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Naive and PDD, two repetitions each, interleaved."""
    return FakeRun(sessions=24, turns=6).write(tmp_path_factory.mktemp("runs") / "two_modes")


@pytest.fixture(scope="session")
def with_faults(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with a collapse that slows and a partition that fails requests."""
    faults = (
        FakeFault("collapse", 8, 12, slow=6.0),
        FakeFault("partition", 18, 21, slow=1.0, error_rate=0.8),
    )
    return FakeRun(sessions=30, turns=6, reps=1, faults=faults).write(
        tmp_path_factory.mktemp("runs") / "with_faults"
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path
