"""Generative-AI spans out of OpenTelemetry JSON: collected documents, and OTLP as exporters write it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from workloads.errors import TraceError
from workloads.readers.chat import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workloads.builder import Place

OPERATIONS: Final = ("chat", "text_completion", "generate_content")
_SESSION_KEYS: Final = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """One call of a model. Texts are None where the span does not carry them."""

    session: str
    span_id: str
    start_ns: int
    end_ns: int
    messages: tuple[tuple[str, str], ...] | None
    output: str | None
    input_tokens: int | None
    output_tokens: int | None
    place: Place


def spans(document: Any, place: Place) -> Iterator[Span]:
    """Calls of a model in a document; other spans are passed over."""
    if not isinstance(document, dict):
        raise TraceError("must be an object with spans", file=place.file, line=place.line)
    if "resourceSpans" in document:
        found = _otlp(document, place)
    elif isinstance(document.get("spans"), list):
        found = document["spans"]
    else:
        raise TraceError("holds neither spans nor resourceSpans", file=place.file, line=place.line)
    for index, raw in enumerate(found):
        if not isinstance(raw, dict):
            raise TraceError("must be an object", file=place.file, line=place.line, field=f"spans[{index}]")
        attributes = _attributes(raw, place)
        if attributes.get("gen_ai.operation.name") in OPERATIONS:
            yield _span(raw, attributes, f"spans[{index}]", place)


def _span(raw: dict[str, Any], attributes: dict[str, Any], where: str, place: Place) -> Span:
    start = _instant(raw, ("start_time", "startTimeUnixNano"), where, place)
    end = _instant(raw, ("end_time", "endTimeUnixNano"), where, place)
    if end < start:
        raise TraceError("ends before it starts", file=place.file, line=place.line, field=where)
    trace_id = raw.get("trace_id", raw.get("traceId", "trace"))
    session = next((attributes[key] for key in _SESSION_KEYS if key in attributes), trace_id)
    messages = attributes.get("gen_ai.input.messages", attributes.get("gen_ai.prompt"))
    output = attributes.get("gen_ai.output.text", attributes.get("gen_ai.completion"))
    if output is None and "gen_ai.output.messages" in attributes:
        said = _messages(attributes["gen_ai.output.messages"], f"{where}.gen_ai.output.messages", place)
        output = "".join(text for _, text in said)
    return Span(
        session=str(session),
        span_id=str(raw.get("span_id", raw.get("spanId", where))),
        start_ns=start,
        end_ns=end,
        messages=None if messages is None else _messages(messages, f"{where}.gen_ai.input.messages", place),
        output=None if output is None else str(output),
        input_tokens=_count(attributes, "gen_ai.usage.input_tokens", where, place),
        output_tokens=_count(attributes, "gen_ai.usage.output_tokens", where, place),
        place=place,
    )


def _messages(value: Any, where: str, place: Place) -> tuple[tuple[str, str], ...]:
    """(role, text) of messages, given as JSON text, as a list, or as one plain text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return (("user", value),)
    if not isinstance(value, list):
        raise TraceError(
            "must be a list of messages", file=place.file, line=place.line, field=where, value=value
        )
    out: list[tuple[str, str]] = []
    for index, message in enumerate(value):
        here = f"{where}[{index}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TraceError("must be a message with a role", file=place.file, line=place.line, field=here)
        if isinstance(message.get("parts"), list):
            parts = [{"text": p.get("content") or ""} if isinstance(p, dict) else p for p in message["parts"]]
            out.append((message["role"], text_of(parts, here, place)))
        else:
            out.append((message["role"], text_of(message.get("content"), here, place)))
    return tuple(out)


def _otlp(document: dict[str, Any], place: Place) -> list[Any]:
    found: list[Any] = []
    try:
        for resource in document["resourceSpans"]:
            for scope in resource.get("scopeSpans", []):
                found += scope.get("spans", [])
    except (AttributeError, TypeError) as e:
        raise TraceError(f"not OTLP: {e}", file=place.file, line=place.line, field="resourceSpans") from e
    return found


def _attributes(raw: dict[str, Any], place: Place) -> dict[str, Any]:
    """Attributes as a flat table; OTLP writes them as a list of typed values."""
    found = raw.get("attributes", {})
    if isinstance(found, dict):
        return found
    try:
        return {item["key"]: next(iter(item["value"].values())) for item in found}
    except (TypeError, KeyError, AttributeError, StopIteration) as e:
        raise TraceError(
            f"not attributes: {e!r}", file=place.file, line=place.line, field="attributes"
        ) from e


def _instant(raw: dict[str, Any], names: tuple[str, str], where: str, place: Place) -> int:
    """Nanoseconds of the epoch, from an ISO text or from OTLP's nanoseconds."""
    iso, nano = (raw.get(name) for name in names)
    try:
        if nano is not None and not isinstance(nano, float | bool):
            return int(nano)
        if isinstance(iso, str):
            at = datetime.fromisoformat(iso)
            at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
            since = at - _EPOCH
            return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    except (ValueError, TypeError):
        pass
    raise TraceError(
        "must be an ISO 8601 time or nanoseconds of the epoch",
        file=place.file,
        line=place.line,
        field=f"{where}.{names[0]}",
        value=iso if nano is None else nano,
    )


def _count(attributes: dict[str, Any], name: str, where: str, place: Place) -> int | None:
    value = attributes.get(name)
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TraceError(
            "must be a whole number", file=place.file, line=place.line, field=f"{where}.{name}", value=value
        )
    return value
