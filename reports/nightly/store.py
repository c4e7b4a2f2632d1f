"""The store of nights: figures for ever, runs for a while.

    STORE/nights/<night>/night.json                                 what was done, and the verdict
    STORE/figures/date=<d>/commit=<c>/host=<h>/<night>-<job>.parquet   one row a figure of a cell
    STORE/figures/<yyyy-mm>.parquet                                 a month of them, compacted
    STORE/runs/<night>/<job>-<attempt>/…                            the runs themselves, until retention

One process at a time may write (an flock on STORE/lock). Reading a store in the middle of a compaction
counts nothing twice: rows are told apart by (night, job, cell, figure), the highest attempt standing.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reports.analysis import Analysis
from reports.comparability import RULES
from reports.errors import RecordingError, ReportError
from reports.nightly.record import Job, Night
from reports.run import Run

STORE_VERSION: Final = 1
_TEXTS: Final = (
    "night",
    "date",
    "host",
    "suite",
    "job",
    "cell",
    "comparable",
    "figure",
    "title",
    "unit",
    "better",
    "commit",
)
_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(_TEXTS, pa.string()),
    "attempt": pa.int32(),
    "headline": pa.bool_(),
    "value": pa.float64(),
    "low": pa.float64(),
    "high": pa.float64(),
    "n": pa.int64(),
    "reps": pa.int32(),
    "valid": pa.bool_(),
}
SCHEMA: Final = pa.schema(list(_TYPES.items()), metadata={"pddbench_store": str(STORE_VERSION)})
_KEY: Final = ["night", "job", "cell", "figure"]
_MONTH: Final = re.compile(r"\d{4}-\d{2}\.parquet")


@dataclass(frozen=True, slots=True)
class Store:
    """A store at `path`; made when first written to."""

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store for writing; refuses when another process holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ReportError(f"{self.path}: another nightly run is using this store") from error
            yield

    def night_folder(self, night: str) -> Path:
        return self.path / "nights" / night

    def run_folder(self, night: str, job: Job) -> Path:
        """Parent of the job's run directory, one for each attempt."""
        return self.path / "runs" / night / f"{job.name}-{job.attempt}"

    def nights(self, suite: str | None = None) -> list[Night]:
        """All nights (of a suite), oldest first."""
        found = [Night.read(path.parent) for path in sorted(self.path.glob("nights/*/night.json"))]
        return [night for night in found if suite is None or night.suite == suite]

    def append(self, night: Night, job: Job, run: Run) -> Path:
        """Add every figure of a run's cells."""
        folder = self.path / "figures" / f"date={night.date}" / f"commit={(night.commit or 'unknown')[:12]}"
        folder = folder / f"host={_plain(night.host_class)}"
        rows = figure_rows(night, job, run)
        path = folder / f"{night.night}-{job.name}-{job.attempt}.parquet"
        _write(path, pa.Table.from_pylist(rows, schema=SCHEMA))
        return path

    def figures(self, suite: str | None = None) -> pd.DataFrame:
        """Figures of all nights (of a suite) by time, the last attempt of each job."""
        files = sorted((self.path / "figures").glob("**/*.parquet"))
        tables = [pq.read_table(path, schema=SCHEMA, partitioning=None) for path in files]
        frame = pa.concat_tables(tables or [SCHEMA.empty_table()]).to_pandas()
        if suite is not None:
            frame = frame[frame["suite"] == suite]
        frame = frame.sort_values(["night", "attempt"], kind="stable")
        last = frame.drop_duplicates([*_KEY], keep="last")
        return last.reset_index(drop=True)

    def compact(self, before: str) -> list[Path]:
        """Put the figures of whole months before `before` (YYYY-MM) into one file a month."""
        months: dict[str, list[Path]] = {}
        for path in sorted((self.path / "figures").glob("date=*/**/*.parquet")):
            month = path.relative_to(self.path / "figures").parts[0].removeprefix("date=")[:7]
            if month < before:
                months.setdefault(month, []).append(path)
        made = []
        for month, paths in months.items():
            target = self.path / "figures" / f"{month}.parquet"
            parts = [target, *paths] if target.exists() else paths
            merged = pa.concat_tables([pq.read_table(p, schema=SCHEMA, partitioning=None) for p in parts])
            rows = merged.to_pandas().drop_duplicates([*_KEY, "attempt"], keep="last")
            _write(target, pa.Table.from_pandas(rows, schema=SCHEMA, preserve_index=False))
            for path in paths:
                path.unlink()
            made.append(target)
        for folder in sorted((self.path / "figures").glob("**/"), reverse=True):
            if folder != self.path / "figures" and not any(folder.iterdir()):
                folder.rmdir()
        return made

    def retire(self, keep_nights: int) -> list[Path]:
        """Remove the runs of all but the last `keep_nights` nights; figures and records stay."""
        folders = sorted((self.path / "runs").glob("*/"))
        retired = folders[: max(len(folders) - keep_nights, 0)]
        for folder in retired:
            shutil.rmtree(folder)
        return retired


def figure_rows(night: Night, job: Job, run: Run) -> list[dict[str, Any]]:
    """Every defined figure of every cell of a run."""
    analysis = Analysis.of_run(run)
    valid = analysis.valid
    rows = []
    for side, figures in zip(analysis.sides, analysis.figures, strict=True):
        comparable = "; ".join(f"{name}={rule(run, side.cell)}" for name, (_, rule) in RULES.items())
        for figure in figures:
            estimate = figure.estimate
            if estimate.value is None:
                continue
            rows.append(
                {
                    "night": night.night,
                    "date": night.date,
                    "commit": night.commit,
                    "host": night.host_class,
                    "suite": night.suite,
                    "job": job.name,
                    "attempt": job.attempt,
                    "cell": side.cell.name,
                    "comparable": comparable,
                    "figure": figure.key,
                    "title": figure.metric.title,
                    "unit": figure.metric.unit,
                    "better": figure.metric.better.value,
                    "headline": figure.headline,
                    "value": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "n": estimate.size,
                    "reps": estimate.reps,
                    "valid": valid,
                }
            )
    return rows


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordingError(f"{path}: cannot write ({error.strerror or error})") from error


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)
