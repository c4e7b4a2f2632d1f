"""night.json: what one night did, job by job; what a crashed night is resumed from."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final

import msgspec

from reports.errors import ReportError
from reports.whole_file import write_whole

FILE_NAME: Final = "night.json"


class JobState(enum.StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """No time left in the night's budget."""


class NightVerdict(enum.StrEnum):
    PASSED = "passed"
    REGRESSED = "regressed"
    INCOMPLETE = "incomplete"
    """A job failed or its run is invalid, so nothing was judged by it."""
    ACCEPTED = "accepted"
    """It regressed, and somebody took the new level as the one to hold."""


class Job(msgspec.Struct, frozen=True):
    """One run of the suite's matrix."""

    name: str
    state: JobState = JobState.WAITING
    reason: str = ""
    run: str | None = None
    """Run folder, relative to the store."""
    seconds: float | None = None
    valid: bool | None = None
    attempt: int = 1


class Night(msgspec.Struct, frozen=True):
    """One night of one suite."""

    night: str
    """Sorts by time: 20261130-213000."""
    suite: str
    suite_digest: str
    started_ns: int
    host_class: str
    commit: str | None
    dirty: bool | None
    jobs: tuple[Job, ...]
    ended_ns: int | None = None
    verdict: NightVerdict | None = None
    findings: tuple[str, ...] = ()

    @property
    def date(self) -> str:
        """YYYY-MM-DD of the start."""
        return f"{self.night[:4]}-{self.night[4:6]}-{self.night[6:8]}"

    def job(self, name: str) -> Job:
        return next(job for job in self.jobs if job.name == name)

    def with_job(self, changed: Job) -> Night:
        """The night with one job replaced."""
        jobs = tuple(changed if job.name == changed.name else job for job in self.jobs)
        return msgspec.structs.replace(self, jobs=jobs)

    def write(self, folder: Path) -> None:
        """Put night.json into its folder at once or not at all."""
        write_whole(self, folder, FILE_NAME)

    @classmethod
    def read(cls, folder: Path) -> Night:
        path = folder / FILE_NAME
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            raise ReportError(f"{path}: not the record of a night ({error})") from error
