"""OpenTelemetry spans with GenAI attributes: parallel calls and calls that wait for several are kept.

A call waits for the calls whose answers stand in its messages; a call whose messages hold no answer waits
for none. Where spans carry no messages, a call waits for those that had ended when it started and that no
other of them waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.builder import TraceBuilder
from workloads.errors import TraceError
from workloads.prefix_tree import NO_NODE
from workloads.readers.azure import LENGTHS_ONLY
from workloads.readers.json_lines import elements
from workloads.readers.otel_spans import OPERATIONS, Span, spans
from workloads.source import digest, files
from workloads.text import ESTIMATED, PieceTable, as_ids
from workloads.trace import Tail, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "otel"


def sniff(_path: Path, head: bytes) -> bool:
    """Whether these are the first bytes of spans with GenAI attributes."""
    return b"gen_ai." in head and (b'"spans"' in head or b'"resourceSpans"' in head)


def read(path: Path, _options: ReadOptions) -> Trace:
    """One file of one or more documents, or a directory of them."""
    sources = files(path, (".json", ".jsonl"))
    found = [s for source in sources for document, place in elements(source) for s in spans(document, place)]
    if not found:
        raise TraceError(f"holds no span with gen_ai.operation.name {', '.join(OPERATIONS)}", file=path)
    with_text = [span.messages is not None for span in found]
    if any(with_text) and not all(with_text):
        odd = found[with_text.index(False)]
        raise TraceError(
            "some spans carry gen_ai.input.messages and this one does not",
            file=odd.place.file,
            field=odd.span_id,
        )
    builder = TraceBuilder(block_size=1, tail=Tail.WHOLE, prefix_known=all(with_text))
    pieces = PieceTable()
    origin = min(span.start_ns for span in found)
    sessions: dict[str, list[Span]] = {}
    for span in sorted(found, key=lambda s: (s.start_ns, s.end_ns)):
        sessions.setdefault(span.session, []).append(span)
    for name, calls in sessions.items():
        _Session(builder, pieces, name, calls, origin).add()
    return builder.build(
        name=path.name,
        source_format=NAME,
        digest=digest(sources),
        warnings=[ESTIMATED if all(with_text) else LENGTHS_ONLY],
    )


class _Session:
    def __init__(
        self, builder: TraceBuilder, pieces: PieceTable, name: str, calls: list[Span], origin_ns: int
    ) -> None:
        self.builder = builder
        self.pieces = pieces
        self.calls = calls
        self.origin_ns = origin_ns
        self.start_ns = calls[0].start_ns
        self.session = builder.open_session(name, self.start_ns - origin_ns, calls[0].place)
        self.waits: list[set[int]] = []  # every call each one waits for, directly or through others
        self.nodes: list[int] = []

    def add(self) -> None:
        for turn, call in enumerate(self.calls):
            after = self._after(turn)
            node, inputs = self._prompt(call, len(self.builder))
            began = max((self.calls[a].end_ns for a in after), default=self.start_ns)
            self.builder.add_turn(
                self.session,
                call.place,
                input_tokens=inputs,
                output_tokens=self._output(call),
                node=node,
                after=after,
                base=self._base(turn, node),
                delay_ns=max(0, call.start_ns - began),
                arrival_ns=call.start_ns - self.origin_ns,
                service_ns=call.end_ns - call.start_ns,
            )
            self.nodes.append(node)

    def _after(self, turn: int) -> list[int]:
        """Calls this one waits for, without those that another of them waited for already."""
        call = self.calls[turn]
        ended = [t for t in range(turn) if self.calls[t].end_ns <= call.start_ns]
        if call.messages is not None:
            quoted = {text.strip() for role, text in call.messages if role == "assistant"}
            ended = [t for t in ended if (self.calls[t].output or "").strip() in quoted]
        through = set().union(*(self.waits[t] for t in ended)) if ended else set()
        self.waits.append(through | set(ended))
        return [t for t in ended if t not in through]

    def _prompt(self, call: Span, owner: int) -> tuple[int, int]:
        """Node and length of the prompt."""
        if call.messages is None:
            if call.input_tokens is None:
                raise self._missing(call, "gen_ai.input.messages or gen_ai.usage.input_tokens")
            return NO_NODE, call.input_tokens
        ids: list[int] = []
        for role, text in call.messages:
            ids += self.pieces.marked(role, text)
        ids += self.pieces.opening("assistant")
        return self.builder.tree.insert(0, as_ids(ids), owner), len(ids)

    def _output(self, call: Span) -> int:
        if call.output_tokens is not None:
            return call.output_tokens
        if call.output is None:
            raise self._missing(
                call, "gen_ai.output.text, gen_ai.output.messages or gen_ai.usage.output_tokens"
            )
        return len(self.pieces.ids(call.output))

    def _base(self, turn: int, node: int) -> int | None:
        """The call waited for, directly or not, whose prompt this one continues furthest."""
        earlier = sorted(self.waits[turn])
        if not earlier or node == NO_NODE:
            return None
        found = self.builder.tree.most_shared([self.nodes[t] for t in earlier], node)
        return None if found is None else earlier[found]

    @staticmethod
    def _missing(call: Span, what: str) -> TraceError:
        return TraceError(f"needs {what}", file=call.place.file, line=call.place.line, field=call.span_id)
