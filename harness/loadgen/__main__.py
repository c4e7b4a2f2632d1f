"""`python -m harness.loadgen JOB.json`: do one job; progress on stdout, errors in one line on stderr.

Exit codes: 0 done, 1 the run failed, 2 the job is wrong, 3 done but the instrument was the bottleneck,
130 interrupted (what was recorded is complete and readable).
"""

from __future__ import annotations

import sys
from pathlib import Path

# Locust first: importing it makes the standard library cooperative, and nothing may have run before that.
import locust  # noqa: F401

from harness.loadgen.job import JobError, read_job
from harness.loadgen.local import run_local
from harness.loadgen.master import DistributedError, run_distributed
from harness.loadgen.progress import Announcer, Failed
from harness.loadgen.recording import RecordingLostError
from workloads.errors import TraceError


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m harness.loadgen JOB.json\n")
        return 2
    announcer = Announcer("quiet")
    try:
        job = read_job(Path(arguments[0]))
        announcer = Announcer(job.progress)
        if job.processes > 1 or job.master is not None:
            assessment = run_distributed(job, announcer)
        else:
            assessment = run_local(job, announcer)
    except (JobError, TraceError) as error:
        announcer.say(Failed(str(error)))
        return 2
    except (RecordingLostError, DistributedError) as error:
        announcer.say(Failed(str(error)))
        return 1
    if assessment.interrupted:
        return 130
    return 0 if assessment.valid else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
