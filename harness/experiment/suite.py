"""A nightly suite: which experiments to run every night, over which links, workloads and seeds."""

from __future__ import annotations

import hashlib
import itertools
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.experiment.config import AtLeastOne, ConfigError, Name, Positive, load_experiment, merge, read
from reports.nightly.gate import GateSettings


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the store keeps what."""

    run_nights: AtLeastOne = 14
    """Nights whose runs are kept; figures and verdicts are kept for ever."""
    loose_months: AtLeastOne = 2
    """Months whose figures stay one file a run; older ones are compacted to a file a month."""


class JobConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment and the matrix it is run over; its cells are the modes."""

    experiment: str
    """Experiment file, relative to the suite."""
    world: Literal["live", "sim"] = "live"
    links: tuple[str, ...] = ()
    """Names of link profiles; empty: the experiment's own."""
    workloads: tuple[str, ...] = ()
    """Workload sources, as in workload.source; empty: the experiment's own."""
    seeds: tuple[int, ...] = ()
    """Empty: the experiment's own."""
    set: dict[str, Any] = {}
    """Overrides, nested as in the experiment file."""


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The suite file."""

    name: Name
    jobs: tuple[JobConfig, ...]
    description: str = ""
    budget_minutes: Positive | None = None
    """No job is begun that is not expected to end within; None: no limit."""
    confirm: bool = True
    """Run a job that regressed once more before the night is called regressed."""
    gate: GateSettings = GateSettings()
    retention: Retention = Retention()


class PlannedJob(msgspec.Struct, frozen=True):
    """One run of the matrix."""

    name: str
    experiment: Path
    world: Literal["live", "sim"]
    overrides: dict[str, Any]


def load_suite(path: Path, overrides: dict[str, Any]) -> tuple[Suite, tuple[PlannedJob, ...], str]:
    """Read a suite; returns it, its jobs, and a digest of all that it says. Raises ConfigError.

    `overrides` win over every job's own. Each experiment is read and resolved, so that a mistake in any
    of them is found before the night begins.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give a suite in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    suite = read(Suite, raw, str(path))
    if not suite.jobs:
        raise ConfigError(f"{path}: jobs: at least one [[jobs]]")
    planned = [job for config in suite.jobs for job in _matrix(path, config, overrides)]
    taken: set[str] = set()
    digest = hashlib.sha256(path.read_bytes())
    for job in planned:
        if job.name in taken:
            raise ConfigError(
                f"{path}: jobs: two jobs are called {job.name!r}; let them differ in what is run"
            )
        taken.add(job.name)
        experiment = load_experiment(job.experiment, job.overrides)
        digest.update(msgspec.json.encode(experiment, order="deterministic"))
    return suite, tuple(planned), digest.hexdigest()[:16]


def _matrix(suite: Path, config: JobConfig, overrides: dict[str, Any]) -> list[PlannedJob]:
    experiment = suite.parent / config.experiment
    found = []
    for link, workload, seed in itertools.product(
        config.links or (None,), config.workloads or (None,), config.seeds or (None,)
    ):
        parts = [experiment.stem, *("sim" for _ in [0] if config.world == "sim")]
        own: dict[str, Any] = dict(config.set)
        if link is not None:
            own = merge(own, {"link": {"profile": link}})
            parts.append(link)
        if workload is not None:
            own = merge(own, {"workload": {"source": workload}})
            parts.append(Path(workload.removeprefix("preset:")).stem)
        if seed is not None:
            own = merge(own, {"seed": seed})
            parts.append(f"seed{seed}")
        name = re.sub(r"[^A-Za-z0-9._+]+", "-", "-".join(parts))
        found.append(PlannedJob(name, experiment, config.world, merge(own, overrides)))
    return found
