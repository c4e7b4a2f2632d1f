"""The workers, how busy each is, and where the next piece of work goes."""

from __future__ import annotations

from dataclasses import dataclass

from harness.policy.events import WorkerName
from harness.policy.roles import Role


@dataclass(slots=True)
class Worker:
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
        candidates = [
            w for w in self._by_role[role] if not w.draining and (slots is None or w.sequences < slots)
        ]
        if len(candidates) > 1:
            candidates = [w for w in candidates if w.name != avoid] or candidates
        if not candidates:
            return None
        least = min(candidates, key=lambda w: w.sequences)
        if held and len(candidates) > 1:
            holder = max(candidates, key=lambda w: held.get(w.name, 0))
            if held.get(holder.name, 0) > 0 and holder.sequences <= least.sequences + slack:
                return holder
        return least
