"""What a driver writes down: one `handoffs` row a request and one `decisions` row an event.

Pure: it sees what the policy sees (instant, event, actions) and derives nothing that the metrics
can derive later. Both drivers use it, so live and simulated runs have the same columns.
"""

from __future__ import annotations

from typing import Any

import msgspec

from harness.policy import actions as act
from harness.policy import events as ev
from harness.policy.roles import HandoffMode, HandoffPayload, Pipeline, Role, TransferPurpose

Row = dict[str, Any]

ID_BYTES = 4
"""A token id on the wire."""

_encode = msgspec.json.Encoder().encode


def decision_row(seq: int, now_ns: int, event: ev.Event, actions: tuple[act.Action, ...]) -> Row:
    """A row of the `decisions` table."""
    return {
        "seq": seq,
        "now_ns": now_ns,
        "request_id": getattr(event, "request", None),
        "event": _encode(event).decode(),
        "actions": _encode(actions).decode(),
    }


def _drop_notes(row: Row) -> None:
    """Take out what only the journal itself needed."""
    row.pop("prompt_tokens", None)
    row.pop("relay_began", None)


class HandoffJournal:
    """Builds `handoffs` rows; `observe` returns the row of a request when it has settled."""

    def __init__(self) -> None:
        self._rows: dict[ev.RequestId, Row] = {}
        self._roles: dict[ev.WorkerName, Role] = {}
        self._opens: dict[ev.RequestId, dict[ev.WorkId, Role]] = {}
        self._transfers: dict[ev.RequestId, dict[ev.WorkId, TransferPurpose]] = {}
        """Work under way, by request: whatever never reports goes with its request."""

    def observe(self, now_ns: int, event: ev.Event, actions: tuple[act.Action, ...]) -> Row | None:
        """Take one step of the policy. Each request's row is returned once, at its end."""
        self._event(now_ns, event)
        settled = None
        for action in actions:
            settled = self._action(now_ns, action) or settled
        return settled

    def row(self, request: ev.RequestId) -> Row:
        """What is known of a request so far; empty when it is unknown or has settled."""
        return self._rows.get(request, {})

    def unfinished(self) -> list[Row]:
        """Rows of requests that have not settled (for a run that is cut short)."""
        rows = list(self._rows.values())
        for known in (self._rows, self._opens, self._transfers):
            known.clear()
        for row in rows:
            row.setdefault("outcome", "failed")
            row.setdefault("error", "cut off by the end of the run")
            _drop_notes(row)
        return rows

    def _event(self, now_ns: int, event: ev.Event) -> None:
        match event:
            case ev.WorkerJoined():
                self._roles[event.worker] = event.role
            case ev.RequestArrived():
                self._rows[event.request] = {
                    "request_id": event.request,
                    "session_id": event.session,
                    "pipeline": Pipeline.DIRECT.value,
                    "arrived_ns": now_ns,
                    "output_tokens": 0,
                    "retries": 0,
                    "prompt_tokens": event.prompt_tokens,
                }
                self._opens[event.request], self._transfers[event.request] = {}, {}
            case ev.PrefillDone() if row := self._rows.get(event.request):
                row["prefill_done_ns"] = now_ns
                row["prefill_cached_tokens"] = event.cached
                row["prefill_computed_tokens"] = event.computed
            case ev.Opened():
                self._opened(event)
            case ev.TransferDone():
                self._transferred(now_ns, event.request, event.work, event.kv_bytes, event.copy_ns, done=True)
            case ev.Cancelled():
                self._transferred(now_ns, event.request, event.work, event.kv_bytes, 0, done=False)
            case ev.ExtendDone() if row := self._rows.get(event.request):
                row["extend_done_ns"] = now_ns
            case ev.ClientGone() if row := self._rows.get(event.request):
                row.setdefault("end_ns", now_ns)
                row.setdefault("error", "client went away")
            case _:
                pass

    def _opened(self, event: ev.Opened) -> None:
        row = self._rows.get(event.request)
        if row is None:
            return
        role = self._opens[event.request].pop(event.work, None)
        if role is Role.RELAY_DECODE:
            row["relay_hit_tokens"] = event.held
        elif role is not None:
            row["main_hit_tokens"] = event.held

    def _transferred(
        self, now_ns: int, request: ev.RequestId, work: ev.WorkId, kv_bytes: int, copy_ns: int, *, done: bool
    ) -> None:
        row = self._rows.get(request)
        purpose = self._transfers[request].pop(work, None) if row is not None else None
        if row is None or purpose is None:
            return
        if purpose is TransferPurpose.HANDOFF:
            row["handoff_bytes"] = kv_bytes
            row["copy_ns"] = copy_ns
            return
        leg = "relay" if purpose is TransferPurpose.RELAY else "main"
        row[f"{leg}_kv_bytes"] = row.get(f"{leg}_kv_bytes", 0) + kv_bytes
        if done:
            row[f"{leg}_transfer_done_ns"] = now_ns

    def _action(self, now_ns: int, action: act.Action) -> Row | None:
        match action:
            case act.Emit():
                self._emitted(now_ns, action)
            case act.Decided() if row := self._rows.get(action.request):
                row["pipeline"] = action.pipeline.value
                row["decided_ns"] = now_ns
                row["estimated_transfer_ns"] = action.estimated_transfer_ns
            case act.Prefill() if row := self._rows.get(action.request):
                row["prefill_worker"] = action.worker
                row["prefill_start_ns"] = now_ns
            case act.Open() if row := self._rows.get(action.request):
                role = self._roles[action.worker]
                self._opens[action.request][action.work] = role
                row["relay_worker" if role is Role.RELAY_DECODE else "main_worker"] = action.worker
            case act.Transfer():
                self._transfer_started(now_ns, action)
            case act.Extend() if row := self._rows.get(action.request):
                self._handoff_began(now_ns, row, HandoffMode.CATCH_UP)
                self._extends(row, action.p1 - action.p0)
            case act.Decode() if row := self._rows.get(action.request):
                if self._roles[action.worker] is Role.RELAY_DECODE:
                    row["relay_began"] = True
                elif "relay_began" in row:
                    self._handoff_began(now_ns, row, HandoffMode.ONE_SHOT)
                    self._extends(row, row["prompt_tokens"] + action.first - action.p0)
            case act.Finish() | act.Fail() if row := self._rows.get(action.request):
                row.setdefault("end_ns", now_ns)
                if isinstance(action, act.Fail):
                    row["error"] = action.error
            case act.Settled():
                return self._settled(action)
            case _:
                pass
        return None

    def _transfer_started(self, now_ns: int, action: act.Transfer) -> None:
        row = self._rows.get(action.request)
        if row is None:
            return
        self._transfers[action.request][action.work] = action.purpose
        if action.purpose is TransferPurpose.HANDOFF:
            self._handoff_began(now_ns, row, HandoffMode.ONE_SHOT)
            row["handoff_payload"] = HandoffPayload.KV_TRANSFER.value
        else:
            leg = "relay" if action.purpose is TransferPurpose.RELAY else "main"
            row[f"{leg}_transfer_start_ns"] = now_ns

    def _handoff_began(self, now_ns: int, row: Row, mode: HandoffMode) -> None:
        """A batch of ids after the client's end only levels MD's cache: no handoff."""
        if "handoff_start_ns" in row or "end_ns" in row:
            return
        row["handoff_start_ns"] = now_ns
        row["handoff_mode"] = mode.value
        row.setdefault("handoff_payload", HandoffPayload.EXTEND_DECODE.value)

    @staticmethod
    def _extends(row: Row, ids: int) -> None:
        row["extend_tokens"] = row.get("extend_tokens", 0) + ids
        row["extend_batches"] = row.get("extend_batches", 0) + 1
        # Without a handoff, or after its answer's end, the ids only level MD's cache.
        if row.get("handoff_payload") == HandoffPayload.EXTEND_DECODE.value and "end_ns" not in row:
            row["handoff_bytes"] = row.get("handoff_bytes", 0) + ids * ID_BYTES

    def _emitted(self, now_ns: int, action: act.Emit) -> None:
        row = self._rows.get(action.request)
        if row is None:
            return
        row["output_tokens"] += action.count
        if action.role is Role.RELAY_DECODE:
            row.setdefault("relay_first_token_ns", now_ns)
            row["relay_tokens"] = row.get("relay_tokens", 0) + action.count
            return
        if "main_first_token_ns" in row:
            return
        row["main_first_token_ns"] = now_ns
        if "relay_tokens" in row:
            row["switch_ns"] = now_ns
            row["switch_index"] = action.first

    def _settled(self, action: act.Settled) -> Row | None:
        row = self._rows.pop(action.request, None)
        if row is None:
            return None
        del self._opens[action.request], self._transfers[action.request]
        _drop_notes(row)
        row["outcome"] = action.outcome
        row["retries"] = action.retries
        row["cache_gap_tokens"] = action.cache_gap
        row["saved_kv_bytes"] = action.saved_kv_bytes
        return row
