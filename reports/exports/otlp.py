"""OpenTelemetry spans: one trace a request, as JSON lines of OTLP (what a collector's file exporter writes).

The client's span is the root; the router's work lies below it. GenAI attributes follow the semantic
conventions (gen_ai.*), what they lack stands under pddbench.*. Ids are hashes of the request id, so that
exporting twice gives the same spans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from reports.exports.rows import Row, joined
from reports.run import Run

_REQUESTS_A_LINE: Final = 200
_INTERNAL: Final = 1
_CLIENT: Final = 3
_OK: Final = 1
_ERROR: Final = 2


def write(run: Run, cell: str, rep: int, path: Path) -> None:
    encoder = msgspec.json.Encoder()
    engine = next(iter(run.cell(cell).engines), None)
    resource = _attributes(
        {
            "service.name": "pddbench",
            "service.version": run.info.versions.pddbench,
            "pddbench.run": run.info.name,
            "pddbench.cell": cell,
            "pddbench.rep": rep,
        }
    )
    with path.open("wb") as out:
        pairs = joined(run, cell, rep)
        while rows := list(islice(pairs, _REQUESTS_A_LINE)):
            spans = [
                span for row, router in rows for span in _spans(row, router, engine.model if engine else None)
            ]
            scope = {"scope": {"name": "pddbench"}, "spans": spans}
            line = {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]}
            out.write(encoder.encode(line) + b"\n")


def _spans(row: Row, router: Row | None, model: str | None) -> Iterator[dict[str, Any]]:
    if row["sent_ns"] is None or row["end_ns"] is None:
        return
    failed = row["status"] != "ok"
    root = _span(row, "request", row["sent_ns"], row["end_ns"], kind=_CLIENT, parent=None)
    root["attributes"] = _attributes(
        {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": row["session_id"],
            "gen_ai.usage.input_tokens": row["prompt_tokens"],
            "gen_ai.usage.output_tokens": row["output_tokens"],
            "gen_ai.usage.cache_read.input_tokens": row["cached_tokens"],
            "pddbench.trace_request": row["trace_request"],
            "pddbench.turn": row["turn"],
            "pddbench.status": row["status"],
            "error.type": row["status"] if failed else None,
            "http.response.status_code": row["http_status"],
        }
    )
    root["status"] = {"code": _ERROR, "message": row["error"] or ""} if failed else {"code": _OK}
    root["events"] = [
        {"name": name, "timeUnixNano": str(row[column])}
        for name, column in (("gen_ai.first_token", "first_token_ns"), ("gen_ai.last_token", "last_token_ns"))
        if row[column] is not None
    ]
    yield root
    if router is not None:
        yield from _router_spans(row, router, root["spanId"])


def _router_spans(row: Row, router: Row, parent: str) -> Iterator[dict[str, Any]]:
    parts = (
        ("prefill", "prefill_start_ns", "prefill_done_ns", {"pddbench.worker": "prefill_worker"}),
        (
            "kv_transfer relay",
            "relay_transfer_start_ns",
            "relay_transfer_done_ns",
            {"pddbench.bytes": "relay_kv_bytes"},
        ),
        (
            "kv_transfer main",
            "main_transfer_start_ns",
            "main_transfer_done_ns",
            {"pddbench.bytes": "main_kv_bytes"},
        ),
        ("relay_decode", "relay_first_token_ns", "switch_ns", {"pddbench.tokens": "relay_tokens"}),
        ("handoff", "handoff_start_ns", "switch_ns", {"pddbench.bytes": "handoff_bytes"}),
        ("main_decode", "main_first_token_ns", "end_ns", {"pddbench.worker": "main_worker"}),
    )
    for name, start, end, attributes in parts:
        if router[start] is None or router[end] is None or router[end] < router[start]:
            continue
        span = _span(row, name, router[start], router[end], kind=_INTERNAL, parent=parent)
        told = {key: router[column] for key, column in attributes.items()}
        span["attributes"] = _attributes({"pddbench.pipeline": router["pipeline"], **told})
        yield span


def _span(
    row: Row, name: str, start_ns: int, end_ns: int, *, kind: int, parent: str | None
) -> dict[str, Any]:
    span = {
        "traceId": hashlib.blake2b(row["request_id"].encode(), digest_size=16).hexdigest(),
        "spanId": hashlib.blake2b(f"{row['request_id']} {name}".encode(), digest_size=8).hexdigest(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
    }
    return span if parent is None else {**span, "parentSpanId": parent}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Known values in OTLP's JSON: integers are strings there."""
    found = []
    for key, value in values.items():
        match value:
            case None:
                continue
            case bool():
                typed: dict[str, Any] = {"boolValue": value}
            case int():
                typed = {"intValue": str(value)}
            case float():
                typed = {"doubleValue": value}
            case _:
                typed = {"stringValue": str(value)}
        found.append({"key": key, "value": typed})
    return found
