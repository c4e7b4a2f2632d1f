"""`python -m harness.loadgen.join HOST PORT`: one worker process; `pddbench worker` for people."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Locust first: importing it makes the standard library cooperative, and nothing may have run before that.
import locust  # noqa: F401

from harness.loadgen.job import JobError
from harness.loadgen.recording import RecordingLostError
from harness.loadgen.worker import Worker, WorkerError
from workloads.errors import TraceError


def main() -> int:
    """Exit codes as those of `python -m harness.loadgen`."""
    parser = argparse.ArgumentParser(prog="python -m harness.loadgen.join", description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument(
        "--run-dir", type=Path, help="where this worker's records go (default: as the job says)"
    )
    parser.add_argument("--join-s", type=float, default=60.0)
    parser.add_argument("--local", action="store_true", help="started by the master: end when it does")
    options = parser.parse_args()
    worker: Worker | None = None
    try:
        worker = Worker(
            options.host,
            options.port,
            run_dir=options.run_dir,
            join_s=options.join_s,
            parent=os.getppid() if options.local else None,
        )
        assessment, folder = worker.serve()
    except (JobError, TraceError, WorkerError, RecordingLostError) as error:
        sys.stderr.write(f"worker: {error}\n")
        return 1 if isinstance(error, RecordingLostError) else 2
    finally:
        if worker is not None:
            worker.close()
    if not options.local:
        sys.stdout.write(
            f"{assessment.shard}: {sum(assessment.requests.values())} requests recorded in {folder}\n"
        )
    if assessment.interrupted:
        return 130
    return 0 if assessment.valid else 3


if __name__ == "__main__":
    sys.exit(main())
