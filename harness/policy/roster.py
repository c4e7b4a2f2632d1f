"""The workers, how busy each is, and where the next piece of work goes."""

from __future__ import annotations

import msgspec

from harness.policy.events import WorkerName
from harness.policy.roles import Role


class Worker(msgspec.Struct, eq=False):
    """One worker as the policy sees it. `sequences` counts what is open or being opened on it."""

    name: WorkerName
    role: Role
    cluster: str
    slots: int
    kv_bytes_per_token: float
    sequences: int = 0
    draining: bool = False


class Roster:
    """Workers by name and role, in the order in which they joined (ties go to the earlier one)."""

    def __init__(self) -> None:
        self._workers: dict[WorkerName, Worker] = {}
        self._by_role: dict[Role, list[Worker]] = {role: [] for role in Role}

    def __getitem__(self, name: WorkerName) -> Worker:
        return self._workers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._workers

    def join(self, worker: Worker) -> None:
        self._workers[worker.name] = worker
        self._by_role[worker.role].append(worker)

    def leave(self, name: WorkerName) -> None:
        worker = self._workers.pop(name)
        self._by_role[worker.role].remove(worker)

    def drain(self, name: WorkerName) -> None:
        self._workers[name].draining = True

    def place(
        self,
        role: Role,
        held: dict[WorkerName, int],
        *,
        slack: int,
        avoid: WorkerName | None = None,
        slots: int | None = None,
    ) -> Worker | None:
        """The worker for a sequence whose session has `held` tokens per worker.

        Prefix affinity first: the holder of the longest prefix, unless it has more than `slack`
        sequences above the least busy one; otherwise the least busy. `avoid` is taken only when
        nothing else is up. With `slots`, workers that have as many sequences open are full."""
        least: Worker | None = None
        holder: Worker | None = None
        avoided: Worker | None = None
        most = 0
        for worker in self._by_role[role]:
            if worker.draining or (slots is not None and worker.sequences >= slots):
                continue
            if worker.name == avoid:
                avoided = worker
                continue
            if least is None or worker.sequences < least.sequences:
                least = worker
            if held and (tokens := held.get(worker.name, 0)) > most:
                holder, most = worker, tokens
        if least is None:
            return avoided
        return holder if holder is not None and holder.sequences <= least.sequences + slack else least
