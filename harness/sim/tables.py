"""An observer that writes the tables of a run, the same ones that a live run writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.journal import HandoffJournal, decision_row
from harness.sim.columns import ColumnWriter
from harness.sim.request import SimRequest
from harness.sim.session import Session, Turn
from harness.sim.wan import WanPool
from harness.sim.worker import SimWorker
from reports.schema import DECISIONS, HANDOFFS, LINK_SAMPLES, REQUESTS, WORKER_SAMPLES

_NAMES_DRIVER: Final = "sim"


class TableObserver:
    """Streams rows to disk as requests end; nothing is kept in memory beyond a batch."""

    wants_decisions = True

    def __init__(self, run_dir: Path, *, cell: str, rep: int, profile: str, decisions: bool) -> None:
        def table(schema: object) -> ColumnWriter:
            return ColumnWriter(run_dir, schema, cell=cell, rep=rep)  # type: ignore[arg-type]

        self._requests: Final = table(REQUESTS)
        self._handoffs: Final = table(HANDOFFS)
        self._decisions: Final = table(DECISIONS) if decisions else None
        self._link: Final = table(LINK_SAMPLES)
        self._workers: Final = table(WORKER_SAMPLES)
        self._profile: Final = profile
        self._prefix: Final = f"{cell}/{rep}/"
        self._journal: Final = HandoffJournal()
        self._seq = 0
        self.statuses: dict[str, int] = {}
        """Requests by status."""
        self.cached_tokens = 0
        self.expected_tokens = 0
        self.prompt_tokens = 0

    def close(self) -> None:
        """Write what is pending; the requests that a run left unfinished too."""
        for row in self._journal.unfinished():
            row.pop("prompt_tokens", None)
            row.pop("relay_began", None)
            self._handoffs.write(row)
        for writer in (self._requests, self._handoffs, self._decisions, self._link, self._workers):
            if writer is not None:
                writer.close()

    # ------------------------------------------------------------------ Observer

    def decided(self, now_ns: int, event: ev.Event, actions: tuple[act.Action, ...]) -> None:
        row = self._journal.observe(now_ns, event, actions)
        if row is not None:
            self._handoffs.write(row)
        if self._decisions is not None:
            self._decisions.write(decision_row(self._seq, now_ns, event, actions))
            self._seq += 1

    def ended(self, request: SimRequest) -> None:
        self._count(request.status)
        turn, sent_ns, instants = request.turn, request.arrived_ns, request.instants()
        if not request.warmup and request.cached_tokens is not None:
            self.cached_tokens += request.cached_tokens
            self.expected_tokens += turn.expected_hit_tokens
            self.prompt_tokens += request.prompt_tokens
        self._requests.write(
            {
                "request_id": request.id,
                "trace_request": request.id.removeprefix(self._prefix),
                "session_id": request.session.session_id,
                "turn": turn.turn,
                "tenant": turn.tenant,
                "phase": "warmup" if request.warmup else "measure",
                "intended_ns": sent_ns,
                "sent_ns": sent_ns,
                "first_byte_ns": request.first_token_ns,
                "first_token_ns": request.first_token_ns,
                "first_output_ns": request.first_token_ns,
                "last_token_ns": request.last_token_ns,
                "end_ns": request.end_ns,
                "prompt_tokens": request.prompt_tokens,
                "requested_tokens": turn.output_tokens,
                "output_tokens": request.output_tokens,
                "cached_tokens": request.cached_tokens,
                "expected_cached_tokens": turn.expected_hit_tokens,
                "token_offsets_ns": None if instants is None else instants - sent_ns,
                "status": request.status,
                "error": request.error,
                "clock_source": _NAMES_DRIVER,
                "merged_reads": 0,
                "retries": 0,
                "shard": _NAMES_DRIVER,
            }
        )

    def unsent(self, session: Session, turn: Turn, now_ns: int, error: str, *, warmup: bool) -> None:
        self._count("unfinished")
        name = f"{session.session_id}/{turn.turn}"
        self._requests.write(
            {
                "request_id": self._prefix + name,
                "trace_request": name,
                "session_id": session.session_id,
                "turn": turn.turn,
                "tenant": turn.tenant,
                "phase": "warmup" if warmup else "measure",
                "intended_ns": now_ns,
                "end_ns": now_ns,
                "prompt_tokens": turn.prompt_tokens,
                "requested_tokens": turn.output_tokens,
                "expected_cached_tokens": turn.expected_hit_tokens,
                "status": "unfinished",
                "error": error,
                "clock_source": _NAMES_DRIVER,
                "merged_reads": 0,
                "retries": 0,
                "shard": _NAMES_DRIVER,
            }
        )

    def sample(self, now_ns: int, workers: Sequence[SimWorker], wan: WanPool) -> None:
        self._link.write(
            {
                "t_ns": now_ns,
                "direction": "a_to_b",
                "driver": _NAMES_DRIVER,
                "profile": self._profile,
                "sent_bytes": round(wan.sent()),
                "backlog_bytes": round(wan.backlog_bytes()),
                "rate_bit_s": round(wan.line.rate_bytes_s * 8),
                "rtt_ns": round(wan.line.rtt_s * 1e9),
            }
        )
        for worker in workers:
            self._workers.write(
                {
                    "t_ns": now_ns,
                    "worker": worker.name,
                    "role": worker.role.value,
                    "cluster": worker.cluster,
                    "running": worker.running,
                    "waiting": worker.waiting,
                    "held_tokens": worker.held_tokens,
                    "capacity_tokens": worker.capacity_tokens,
                    "computed_tokens": worker.computed_tokens,
                    "cached_tokens": worker.cached_tokens,
                    "external_tokens": worker.external_tokens,
                    "decoded_tokens": worker.decoded_tokens,
                    "evicted_tokens": worker.evicted_tokens,
                    "steps": worker.steps,
                    "busy_ns": worker.busy_ns,
                }
            )

    def _count(self, status: str) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
