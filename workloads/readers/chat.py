"""Conversations as text: OpenAI chat messages and ShareGPT, as a JSON array or JSON lines.

Every answer in a conversation is a turn whose prompt is all that stands before it. There are no times:
sessions start together and turns follow at once, until arrivals and waits are set. Prompts without an
answer have no output length and are left out, counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from workloads.builder import Place, TraceBuilder
from workloads.errors import TraceError
from workloads.readers.json_lines import elements
from workloads.source import digest, files
from workloads.text import ESTIMATED, PieceTable, as_ids
from workloads.trace import Tail, Trace, Trigger

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "chat"
_ROLES: Final = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
}


def sniff(_path: Path, head: bytes) -> bool:
    """Whether these are the first bytes of conversations."""
    start = head.lstrip()
    chat = (
        b'"messages"' in start and b'"role"' in start and b'"spans"' not in start and b"gen_ai." not in start
    )
    return start[:1] in {b"{", b"["} and (chat or (b'"conversations"' in start and b'"from"' in start))


def read(path: Path, _options: ReadOptions) -> Trace:
    """One file, or a directory of .json and .jsonl files read as one."""
    sources = files(path, (".json", ".jsonl"))
    reader = _Reader()
    for source in sources:
        for conversation, place in elements(source):
            reader.add(conversation, place)
    if not len(reader.builder):
        raise TraceError("holds no answer of an assistant: no turn has an output length", file=path)
    warnings = [ESTIMATED, "conversations carry no times: turns follow at once"]
    if reader.unanswered:
        warnings.append(f"{reader.unanswered} conversations end with a prompt that has no answer: left out")
    return reader.builder.build(name=path.name, source_format=NAME, digest=digest(sources), warnings=warnings)


class _Reader:
    def __init__(self) -> None:
        self.builder = TraceBuilder(block_size=1, tail=Tail.WHOLE)
        self.pieces = PieceTable()
        self.unanswered = 0
        self.names: set[str] = set()

    def add(self, conversation: Any, place: Place) -> None:
        messages = _messages(conversation, place)
        name = self._name(conversation, place)
        session: int | None = None
        prompt: list[int] = []
        said_by = "user"
        last_node = -1
        for at, (role, text) in enumerate(messages):
            if role == "assistant" and at:
                asked = prompt + self.pieces.opening("assistant")
                answer = self.pieces.ids(text)
                if session is None:
                    session = self.builder.open_session(name, 0, place)
                turn = self.builder.turns_in(session)
                node = self.builder.tree.insert(0, as_ids(asked), len(self.builder))
                shares = turn and self.builder.tree.common_depth(last_node, node)
                self.builder.add_turn(
                    session,
                    place,
                    input_tokens=len(asked),
                    output_tokens=len(answer),
                    node=node,
                    after=[turn - 1] if turn else [],
                    base=turn - 1 if shares else None,
                    delay_ns=0,
                    trigger=Trigger.TOOL if said_by == "tool" else Trigger.USER,
                )
                last_node = node
            prompt += self.pieces.marked(role, text)
            said_by = role
        if messages[-1][0] != "assistant":
            self.unanswered += 1

    def _name(self, conversation: Any, place: Place) -> str:
        told = (
            conversation.get("id", conversation.get("conversation_id"))
            if isinstance(conversation, dict)
            else None
        )
        name = str(told) if isinstance(told, str | int) else f"{place.line}"
        if name in self.names:
            name = f"{name} ({place.line})"
        self.names.add(name)
        return name


def _messages(conversation: Any, place: Place) -> list[tuple[str, str]]:
    """(role, text) of each message."""
    found = conversation
    if isinstance(conversation, dict):
        found = conversation.get("messages", conversation.get("conversations"))
    if not isinstance(found, list) or not found:
        raise TraceError("must hold a list of messages", file=place.file, line=place.line, field="messages")
    return [_message(m, i, place) for i, m in enumerate(found)]


def _message(message: Any, index: int, place: Place) -> tuple[str, str]:
    where = f"messages[{index}]"
    if not isinstance(message, dict):
        raise TraceError("must be an object", file=place.file, line=place.line, field=where, value=message)
    told = message.get("role", message.get("from"))
    role = _ROLES.get(told) if isinstance(told, str) else None
    if role is None:
        raise TraceError(
            f"must be one of {', '.join(_ROLES)}",
            file=place.file,
            line=place.line,
            field=f"{where}.role",
            value=told,
        )
    return role, text_of(message.get("content", message.get("value")), where, place)


def text_of(content: Any, where: str, place: Place) -> str:
    """Text of a message's content: a string, null (a tool call alone) or a list of parts with text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text", "") if isinstance(part, dict) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    raise TraceError(
        "must be text or parts with text",
        file=place.file,
        line=place.line,
        field=f"{where}.content",
        value=content,
    )
