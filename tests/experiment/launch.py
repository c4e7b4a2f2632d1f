"""How the live tests start `pddbench run`: as a user would, without bounds that a busy machine exceeds."""

from __future__ import annotations

import sys
from pathlib import Path

UNBOUNDED = """
[load.bounds]
lateness_p99_ms = 1e6
loop_lag_p99_ms = 1e6
cpu_share_p90 = 100.0
merged_share = 1.0
"""


def run_command(tmp_path: Path, experiment: str, *options: str) -> list[str]:
    """Writes the experiment; its run goes to a folder of its own in `tmp_path / "runs"`."""
    path = tmp_path / "experiment.toml"
    path.write_text(experiment + UNBOUNDED)
    return [
        sys.executable,
        "-m",
        "harness.cli",
        "run",
        str(path),
        "--out",
        str(tmp_path / "runs"),
        *options,
    ]
