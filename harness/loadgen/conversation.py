"""What a session's next prompt is made of: earlier prompts and *live* answers, as long as a turn needs them.

Ids for endpoints that take ids, text for those that do not. Composing is a byte slice and a join, so a
turn that follows at once is not late by the length of its history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harness.loadgen.prompt import ID_BYTES, encode_ids, token_count

if TYPE_CHECKING:
    from harness.loadgen.reply import Reply
    from workloads.replay import ReplaySession, ReplayTurn

# Fresh text for endpoints without token ids: one word per id of the plan, so that equal ids give equal text.
_WORDS: Final = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron",
    "inlet", "jetty", "knoll", "larch", "maple", "north", "otter", "pearl",
)  # fmt: skip


class ConversationError(RuntimeError):
    """The answer cannot be continued from what the server sent."""


class Prompt(NamedTuple):
    """JSON fragment of the prompt and its length in tokens (planned, where the prompt is text)."""

    json: bytes
    tokens: int


class IdConversation:
    """Prompts of token ids."""

    __slots__ = ("_answers", "_new", "_prompts", "_uses")

    def __init__(self, session: ReplaySession) -> None:
        self._uses: dict[int, int] = {}
        for turn in session.turns:
            if turn.base is not None:
                self._uses[turn.base] = self._uses.get(turn.base, 0) + 1
        self._prompts: dict[int, bytes] = {}
        self._answers: dict[int, bytes] = {}
        self._new: dict[int, bytes] = {}

    def prepare(self, turn: ReplayTurn) -> None:
        """Encode the turn's own tokens ahead of time."""
        if turn.turn not in self._new:
            self._new[turn.turn] = encode_ids(turn.new_ids())

    def compose(self, turn: ReplayTurn) -> Prompt:
        """The turn's prompt; its base must have been composed (and answered, where the answer is kept)."""
        self.prepare(turn)
        encoded = self._new.pop(turn.turn)
        if turn.base is not None:
            base = self._prompts[turn.base]
            if turn.keeps_answer:
                encoded = b"".join((base, self._answers[turn.base], encoded))
            else:
                encoded = base[: turn.kept_tokens * ID_BYTES] + encoded
            self._release(turn.base)
        if turn.turn in self._uses:
            self._prompts[turn.turn] = encoded
        return Prompt(b"[" + encoded[1:] + b"]", token_count(encoded))

    def answer(self, turn: int, reply: Reply) -> None:
        """Keep the live answer; raises ConversationError when a later turn needs ids that did not come."""
        if turn in self._uses:
            if reply.ids_missing:
                raise ConversationError(
                    "the reply carried text without token_ids, so no turn can continue it; "
                    "set target.token_ids = false"
                )
            self._answers[turn] = encode_ids(reply.ids)

    def forget(self, turn: ReplayTurn) -> None:
        """The turn will never be sent."""
        self._new.pop(turn.turn, None)
        if turn.base is not None:
            self._release(turn.base)

    def _release(self, base: int) -> None:
        self._uses[base] -= 1
        if not self._uses[base]:
            del self._uses[base]
            self._prompts.pop(base, None)
            self._answers.pop(base, None)


class Message(msgspec.Struct, frozen=True):
    """One message of a chat, with the tokens the plan counts for it."""

    role: str
    content: str
    tokens: int


class TextConversation:
    """Prompts of text: messages for chat, their concatenation for completions.

    `kept_tokens` cannot cut inside a message whose tokenisation is the server's: the messages that fit
    into it whole are kept.
    """

    __slots__ = ("_answers", "_chat", "_prompts", "_uses")

    def __init__(self, session: ReplaySession, *, chat: bool) -> None:
        self._chat = chat
        self._uses: dict[int, int] = {}
        for turn in session.turns:
            if turn.base is not None:
                self._uses[turn.base] = self._uses.get(turn.base, 0) + 1
        self._prompts: dict[int, tuple[Message, ...]] = {}
        self._answers: dict[int, Message] = {}

    def prepare(self, turn: ReplayTurn) -> None:
        """Text is made when it is needed."""

    def compose(self, turn: ReplayTurn) -> Prompt:
        messages: tuple[Message, ...] = ()
        if turn.base is not None:
            base = self._prompts[turn.base]
            if turn.keeps_answer:
                messages = (*base, self._answers[turn.base])
            else:
                kept = 0
                for message in base:
                    kept += message.tokens
                    if kept > turn.kept_tokens:
                        break
                    messages = (*messages, message)
            self._release(turn.base)
        if turn.new_tokens:
            messages = (*messages, Message("user", words(turn.new_ids().tolist()), turn.new_tokens))
        if turn.turn in self._uses:
            self._prompts[turn.turn] = messages
        tokens = sum(message.tokens for message in messages)
        if self._chat:
            spoken = [{"role": message.role, "content": message.content} for message in messages]
            return Prompt(msgspec.json.encode(spoken), tokens)
        return Prompt(msgspec.json.encode("".join(message.content for message in messages)), tokens)

    def answer(self, turn: int, reply: Reply) -> None:
        if turn in self._uses:
            self._answers[turn] = Message("assistant", "".join(reply.text), reply.output_tokens)

    def forget(self, turn: ReplayTurn) -> None:
        if turn.base is not None:
            self._release(turn.base)

    def _release(self, base: int) -> None:
        self._uses[base] -= 1
        if not self._uses[base]:
            del self._uses[base]
            self._prompts.pop(base, None)
            self._answers.pop(base, None)


Conversation = IdConversation | TextConversation


def words(ids: list[int]) -> str:
    """Text in which equal ids stand for equal words; about one word per token."""
    return "".join(f"{_WORDS[number % len(_WORDS)]}{number // len(_WORDS)} " for number in ids)
