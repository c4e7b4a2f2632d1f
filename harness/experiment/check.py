"""What can be known to be wrong before anything is started or written."""

from __future__ import annotations

from pathlib import Path

from adapters.links.profiles import named
from adapters.transports import KNOWN
from harness.experiment.config import Cell, ConfigError, Experiment, resolve
from harness.experiment.topology import workers_of
from harness.link import LinkError, LinkProfile


def check(experiment: Experiment) -> tuple[Cell, ...]:
    """The cells, resolved. ConfigError for a mode without its workers, an unknown link profile or a
    trace that is not there."""
    cells = resolve(experiment)
    for cell in cells:
        _check_endpoints(cell)
        if cell.cluster.transport not in KNOWN:
            raise ConfigError(
                f"cell {cell.name}: cluster.transport: unknown transport {cell.cluster.transport!r}; known "
                f"transports: {', '.join(KNOWN)}"
            )
        profile_of(cell)
        source = cell.workload.source
        if not source.startswith("preset:") and not Path(source).exists():
            raise ConfigError(f"cell {cell.name}: workload.source: {source}: no such file or folder")
    return cells


def profile_of(cell: Cell) -> LinkProfile:
    """The link profile of a cell, looked up when it is a name."""
    profile = cell.link.profile
    if isinstance(profile, LinkProfile):
        return profile
    try:
        return named(profile)
    except LinkError as error:
        raise ConfigError(f"cell {cell.name}: link.profile: {error}") from None


def _check_endpoints(cell: Cell) -> None:
    """Where some worker of a cell has an endpoint, each must."""
    endpoints = cell.cluster.endpoints
    for slot in workers_of(cell):
        if endpoints and cell.cluster.options("", slot.name).endpoint is None:
            raise ConfigError(
                f"cell {cell.name}: cluster.endpoints: none for {slot.name}; there are {', '.join(endpoints)}"
            )
