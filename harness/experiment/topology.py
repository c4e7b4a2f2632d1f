"""Which workers a cell has, in which role, and in which cluster."""

from __future__ import annotations

from dataclasses import dataclass

from harness.experiment.config import Cell, ConfigError
from harness.link import Cluster
from harness.policy.roles import Role


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    name: str
    role: Role
    cluster: Cluster


def workers_of(cell: Cell) -> tuple[WorkerSlot, ...]:
    """The workers of a cell. ConfigError when a role that the mode needs has none."""
    policy, counts = cell.policy, cell.cluster
    if policy.colocated:
        return _slots("solo", Role.COLOCATED, Cluster.A, counts.colocated)
    if counts.prefill < 1 or counts.main < 1:
        raise ConfigError(
            f"cell {cell.name}: mode {cell.mode} needs at least one prefill and one main worker; "
            f"cluster has {counts.prefill} and {counts.main}"
        )
    relays = counts.relay if policy.relay or policy.local else 0
    if (policy.relay or policy.local) and relays < 1:
        raise ConfigError(
            f"cell {cell.name}: mode {cell.mode} needs at least one relay worker; cluster has 0"
        )
    return (
        *_slots("prefill", Role.PREFILL, Cluster.A, counts.prefill),
        *_slots("relay", Role.RELAY_DECODE, Cluster.A, relays),
        *_slots("main", Role.MAIN_DECODE, Cluster(cell.main_cluster), counts.main),
    )


def _slots(prefix: str, role: Role, cluster: Cluster, n: int) -> tuple[WorkerSlot, ...]:
    return tuple(WorkerSlot(f"{prefix}-{i}", role, cluster) for i in range(n))
