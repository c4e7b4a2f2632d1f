"""One night: run what the suite asks for, put the figures into the store, and judge them.

Every job is a `pddbench run` or `sim` in a process of its own, so that whatever happens to it, the night
goes on; night.json is written before and after each, so that a night that was cut off is taken up again.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.experiment.suite import PlannedJob, Suite
from reports.host import probe_host, probe_versions
from reports.nightly.gate import Finding, Outcome, good_nights, judge
from reports.nightly.record import Job, JobState, Night, NightVerdict
from reports.nightly.store import Store
from reports.nightly.summary import junit, markdown, told
from reports.nightly.trend import write_trend
from reports.render import put
from reports.run import Run
from reports.validity import judge as judge_run

_SOURCE: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = "import sys; sys.argv[0] = 'pddbench'; from harness.cli import main; main()"
_VALID: Final = 0
_INVALID: Final = 3
_DRAIN_S: Final = 120.0
_LONGEST_JOB_S: Final = 12 * 3600.0
_STALE_S: Final = 24 * 3600.0

Say = Callable[[str], None]


class NightResult(msgspec.Struct, frozen=True):
    """What a night came to, and where its pages lie."""

    night: Night
    findings: tuple[str, ...]
    summary: Path
    junit: Path
    trend: Path


def run_night(
    suite: Suite,
    jobs: Sequence[PlannedJob],
    digest: str,
    store: Store,
    *,
    budget_s: float | None,
    say: Say,
) -> NightResult:
    """Run (or take up) tonight's jobs and judge them. Raises ReportError when the store is in use."""
    with store.locked():
        return _Night(suite, jobs, digest, store, budget_s, say).run()


def accept(store: Store, suite: str, name: str) -> Night:
    """Take the level of a night that regressed as the one to hold from now on. Raises ValueError."""
    with store.locked():
        known = {night.night: night for night in store.nights(suite)}
        if name not in known:
            raise ValueError(
                f"{store.path}: no night {name!r} of {suite}; nights: {', '.join(known) or 'none'}"
            )
        night = msgspec.structs.replace(known[name], verdict=NightVerdict.ACCEPTED)
        night.write(store.night_folder(name))
        return night


class _Night:
    def __init__(
        self,
        suite: Suite,
        jobs: Sequence[PlannedJob],
        digest: str,
        store: Store,
        budget_s: float | None,
        say: Say,
    ) -> None:
        self._suite = suite
        self._planned = {job.name: job for job in jobs}
        self._store = store
        self._say = say
        self._began = time.monotonic()
        minutes = suite.budget_minutes
        self._budget_s = budget_s if budget_s is not None else None if minutes is None else 60 * minutes
        self._earlier = store.nights(suite.name)
        self._night = self._begin(digest)
        self._earlier = [night for night in self._earlier if night.night < self._night.night]

    def run(self) -> NightResult:
        self._save()
        for name in self._order():
            self._run_job(name)
        findings = self._judge()
        suspects = {f.job for f in findings if f.outcome is Outcome.REGRESSED}
        if self._suite.confirm and suspects:
            for name in sorted(suspects):
                self._confirm(name)
            findings = self._judge()
        return self._end(findings)

    # ------------------------------------------------------------------ what to do tonight

    def _begin(self, digest: str) -> Night:
        """A new night, or the last one when it was cut off and is still the same."""
        versions = probe_versions(_SOURCE, ())
        host = probe_host().host_class
        now = time.time_ns()
        if self._earlier:
            last = self._earlier[-1]
            same = (last.suite_digest, last.commit, last.host_class) == (digest, versions.git_commit, host)
            if last.ended_ns is None and same and now - last.started_ns < _STALE_S * 1e9:
                self._say(f"taking up night {last.night}, which was cut off")
                jobs = tuple(
                    msgspec.structs.replace(job, state=JobState.WAITING)
                    if job.state in {JobState.RUNNING, JobState.SKIPPED}
                    else job
                    for job in last.jobs
                )
                return msgspec.structs.replace(last, jobs=jobs)
        stamp = dt.datetime.fromtimestamp(now / 1e9, dt.UTC).strftime("%Y%m%d-%H%M%S")
        while self._store.night_folder(stamp).exists():
            time.sleep(1.0)  # two nights within a second: names must differ
            stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
        return Night(
            night=stamp,
            suite=self._suite.name,
            suite_digest=digest,
            started_ns=now,
            host_class=host,
            commit=versions.git_commit,
            dirty=versions.git_dirty,
            jobs=tuple(Job(name) for name in self._planned),
        )

    def _order(self) -> list[str]:
        """Jobs still to do, those first that were not done for the longest time."""
        last_done = {
            job.name: night.night
            for night in self._earlier
            for job in night.jobs
            if job.state is JobState.DONE
        }
        waiting = [job.name for job in self._night.jobs if job.state is JobState.WAITING]
        return sorted(waiting, key=lambda name: last_done.get(name, ""))

    def _expected_s(self, name: str) -> float:
        """How long the job took when last done; 0 when never."""
        for night in reversed(self._earlier):
            for job in night.jobs:
                if job.name == name and job.state is JobState.DONE and job.seconds is not None:
                    return job.seconds
        return 0.0

    def _left_s(self) -> float:
        if self._budget_s is None:
            return _LONGEST_JOB_S
        return self._budget_s - (time.monotonic() - self._began)

    # ------------------------------------------------------------------ doing it

    def _run_job(self, name: str) -> None:
        job = self._night.job(name)
        expected = self._expected_s(name)
        if self._left_s() <= expected:
            reason = (
                f"{max(self._left_s(), 0):.0f} s of the budget are left, it took {expected:.0f} s last time"
            )
            self._change(msgspec.structs.replace(job, state=JobState.SKIPPED, reason=reason))
            self._say(f"{name}: skipped, {reason}")
            return
        # A job that was cut off starts over in a folder of its own.
        while self._store.run_folder(self._night.night, job).exists():
            job = msgspec.structs.replace(job, attempt=job.attempt + 1)
        self._change(msgspec.structs.replace(job, state=JobState.RUNNING, reason=""))
        self._say(f"{name}: running")
        began = time.monotonic()
        done = self._start(self._planned[name], self._store.run_folder(self._night.night, job))
        done = msgspec.structs.replace(
            done, name=name, attempt=job.attempt, seconds=round(time.monotonic() - began, 1)
        )
        if done.run is not None and done.state is JobState.DONE:
            self._store.append(self._night, done, Run.open(self._store.path / done.run))
        self._change(done)
        self._say(f"{name}: {done.state.value}{f', {done.reason}' if done.reason else ''}")

    def _confirm(self, name: str) -> None:
        """Once more, when there is time: a stumble of the machine does not happen twice in a row."""
        job = self._night.job(name)
        if self._left_s() <= (job.seconds or 0.0):
            self._say(f"{name}: regressed; no time left to confirm it")
            return
        self._say(f"{name}: regressed; running it once more")
        self._change(msgspec.structs.replace(job, state=JobState.WAITING))
        self._run_job(name)

    def _start(self, planned: PlannedJob, folder: Path) -> Job:
        """Run one job in a process group of its own, to its end or the budget's."""
        folder.mkdir(parents=True)
        command = [sys.executable, "-c", _PROGRAM, "run" if planned.world == "live" else "sim"]
        command += [str(planned.experiment), "--out", str(folder), "--json", "--no-report"]
        for key, value in _flat(planned.overrides):
            command += ["--set", f"{key}={_toml(value)}"]
        with (folder / "output.log").open("wb") as log:
            child = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=Path.cwd()
            )
            try:
                code = child.wait(timeout=max(self._left_s(), 1.0))
                late = False
            except subprocess.TimeoutExpired:
                late = True
                code = _stop(child)
            except BaseException:
                _stop(child)
                raise
        run = next((path.parent for path in folder.glob("*/run.json")), None)
        relative = None if run is None else str(run.relative_to(self._store.path))
        if late:
            return Job(planned.name, JobState.FAILED, "stopped at the end of the budget", relative)
        if run is None or code not in {_VALID, _INVALID}:
            return Job(planned.name, JobState.FAILED, f"exit code {code}: {_last_line(folder)}", relative)
        reason = "; ".join(judge_run(Run.open(run)).reasons[:3])
        return Job(planned.name, JobState.DONE, reason, relative, valid=code == _VALID)

    # ------------------------------------------------------------------ what it came to

    def _judge(self) -> list[Finding]:
        figures = self._store.figures(self._suite.name)
        tonight = figures[figures["night"] == self._night.night]
        history = figures[figures["night"] < self._night.night]
        return judge(history, tonight, good_nights(self._earlier), self._suite.gate)

    def _end(self, findings: Sequence[Finding]) -> NightResult:
        regressed = [told(f) for f in findings if f.outcome is Outcome.REGRESSED]
        whole = all(job.state is JobState.DONE and job.valid for job in self._night.jobs)
        verdict = NightVerdict.PASSED if whole else NightVerdict.INCOMPLETE
        if regressed:
            verdict = NightVerdict.REGRESSED
        self._night = msgspec.structs.replace(
            self._night, ended_ns=time.time_ns(), verdict=verdict, findings=tuple(regressed)
        )
        folder = self._store.night_folder(self._night.night)
        put(folder / "summary.md", markdown(self._night, findings))
        put(folder / "junit.xml", junit(self._night, findings).decode())
        self._save()
        trend = self._store.path / f"trend-{self._suite.name}.html"
        figures = self._store.figures(self._suite.name)
        write_trend(trend, self._suite.name, figures, [*self._earlier, self._night], self._suite.gate)
        self._store.compact(_month_before(self._night.date, self._suite.retention.loose_months))
        self._store.retire(self._suite.retention.run_nights)
        return NightResult(self._night, tuple(regressed), folder / "summary.md", folder / "junit.xml", trend)

    def _change(self, job: Job) -> None:
        self._night = self._night.with_job(job)
        self._save()

    def _save(self) -> None:
        self._night.write(self._store.night_folder(self._night.night))


def _stop(child: subprocess.Popen[bytes]) -> int:
    """Let it drain and report what it has; kill its group when it does not."""
    for sign, patience_s in ((signal.SIGINT, _DRAIN_S), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(child.pid, sign)
            return child.wait(timeout=patience_s)
        except ProcessLookupError:
            return child.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError(f"process {child.pid} survives SIGKILL")


def _last_line(folder: Path) -> str:
    lines = (folder / "output.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _month_before(date: str, months: int) -> str:
    """First month (YYYY-MM) that stays loose."""
    year, month = int(date[:4]), int(date[5:7])
    count = year * 12 + month - 1 - (months - 1)
    return f"{count // 12:04d}-{count % 12 + 1:02d}"


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


def _toml(value: Any) -> str:
    """A value as inline TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(_toml(entry) for entry in value)}]"
        case dict():
            return f"{{{', '.join(f'{key} = {_toml(entry)}' for key, entry in value.items())}}}"
        case str():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)
