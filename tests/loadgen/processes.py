"""Runs load generator processes on small plans against the calibrated server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from harness.loadgen.calibration import synthetic_plan
from harness.loadgen.job import LoadJob, Target, write_job
from harness.loadgen.progress import Line, decode_line
from reports.schema import REQUESTS
from reports.shard import find_shards, stream_batches
from workloads.replay import ReplayPlan, write_plan

ROOT = Path(__file__).resolve().parents[2]


def sessions_plan(
    sessions: int, turns: int, *, output_tokens: int = 8, gap_ns: int = 5_000_000, think_ns: int = 0
) -> ReplayPlan:
    return synthetic_plan(
        sessions, turns=turns, prompt_tokens=16, output_tokens=output_tokens, think_ns=think_ns, gap_ns=gap_ns
    )


def job_in(folder: Path, port: int, plan: ReplayPlan, **changes) -> Path:
    """Writes plan and job; returns the job's path."""
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(plan, folder / "plan")
    job = LoadJob(
        target=changes.pop("target", None) or Target(f"http://127.0.0.1:{port}"),
        plan=folder / "plan",
        run_dir=folder / "run",
        cell="c",
        rep=0,
        seed=1,
        **changes,
    )
    write_job(job, folder / "job.json")
    return folder / "job.json"


class Launcher:
    """Starts processes, and leaves none behind."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, job: Path) -> subprocess.Popen[bytes]:
        return self.run(sys.executable, "-m", "harness.loadgen", str(job))

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            with process:  # closes its pipes, waits
                if process.poll() is None:
                    process.kill()


def next_line(process: subprocess.Popen[bytes], kind: type) -> Line:
    """The next line of a kind; others before it are skipped."""
    while raw := process.stdout.readline():
        line = decode_line(raw)
        if isinstance(line, kind):
            return line
    raise AssertionError(f"ended without {kind.__name__}: {process.stderr.read().decode()}")


def recorded(folder: Path) -> tuple[pa.Table, list[bool]]:
    """All rows of `requests`, finished or not, and which shards are finished."""
    shards = find_shards(folder / "run", "requests")
    tables = [
        pq.read_table(shard.parquet)
        if shard.parquet.exists()
        else pa.Table.from_batches(list(stream_batches(shard.stream)), REQUESTS.arrow())
        for shard in shards
    ]
    return pa.concat_tables([table.cast(REQUESTS.arrow()) for table in tables]), [
        s.parquet.exists() for s in shards
    ]
