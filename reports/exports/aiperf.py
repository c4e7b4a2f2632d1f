"""AIPerf's profile_export.jsonl: one record a request, warm-up included under its own phase.

Source: the format's documentation in the AIPerf repository (docs/tutorials/working-with-profile-exports).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from reports.exports.rows import Row, joined
from reports.run import Run

_ERRORS: Final = {"error": "RequestError", "timeout": "TimeoutError", "unfinished": "UnfinishedError"}
_CANCELLED_CODE: Final = 499


def write(run: Run, cell: str, rep: int, path: Path) -> None:
    encoder = msgspec.json.Encoder()
    sessions: dict[str, int] = {}
    with path.open("wb") as out:
        for row, _ in joined(run, cell, rep, warmup=True):
            number = sessions.setdefault(row["session_id"], len(sessions))
            out.write(encoder.encode(record(row, number)) + b"\n")


def record(row: Row, session_num: int) -> dict[str, Any]:
    """One line."""
    cancelled = row["status"] == "cancelled"
    return {
        "metadata": {
            "session_num": session_num,
            "x_request_id": row["request_id"],
            "x_correlation_id": row["session_id"],
            "conversation_id": row["session_id"],
            "turn_index": row["turn"],
            "request_start_ns": row["sent_ns"] if row["sent_ns"] is not None else row["intended_ns"],
            "request_ack_ns": row["first_byte_ns"],
            "request_end_ns": row["end_ns"],
            "worker_id": row["shard"],
            "record_processor_id": row["shard"],
            "benchmark_phase": "warmup" if row["phase"] == "warmup" else "profiling",
            "was_cancelled": cancelled,
            "cancellation_time_ns": row["end_ns"] if cancelled else None,
        },
        "metrics": _metrics(row)
        if row["status"] == "ok"
        else {"error_isl": _value(row["prompt_tokens"], "tokens")},
        "error": _error(row),
    }


def _metrics(row: Row) -> dict[str, Any]:
    sent = row["sent_ns"]
    offsets = row["token_offsets_ns"] or []
    gaps = [(b - a) / 1e6 for a, b in pairwise(offsets)]
    tokens = row["output_tokens"]
    found = {"input_sequence_length": _value(row["prompt_tokens"], "tokens")}
    if row["first_token_ns"] is not None:
        found["time_to_first_token"] = _value((row["first_token_ns"] - sent) / 1e6, "ms")
    if row["first_output_ns"] is not None:
        found["time_to_first_output_token"] = _value((row["first_output_ns"] - sent) / 1e6, "ms")
    if gaps:
        found["time_to_second_token"] = _value(gaps[0], "ms")
        found["inter_chunk_latency"] = _value([gap for gap in gaps if gap > 0], "ms")
    if row["last_token_ns"] is not None:
        found["request_latency"] = _value((row["last_token_ns"] - sent) / 1e6, "ms")
    if tokens is not None:
        found["output_token_count"] = _value(tokens, "tokens")
        found["output_sequence_length"] = _value(tokens, "tokens")
        if tokens > 1 and row["last_token_ns"] is not None and row["first_token_ns"] is not None:
            tpot = (row["last_token_ns"] - row["first_token_ns"]) / (tokens - 1) / 1e6
            found["inter_token_latency"] = _value(tpot, "ms")
            if tpot > 0:
                found["output_token_throughput_per_user"] = _value(1000 / tpot, "tokens/sec/user")
    return found


def _value(value: float | list[float], unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def _error(row: Row) -> dict[str, Any] | None:
    if row["status"] == "ok":
        return None
    if row["status"] == "cancelled":
        return {
            "code": _CANCELLED_CODE,
            "type": "RequestCancellationError",
            "message": row["error"] or "cancelled",
        }
    return {
        "code": row["http_status"],
        "type": _ERRORS.get(row["status"], "Error"),
        "message": row["error"] or "",
    }
