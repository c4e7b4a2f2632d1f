"""Token stamps, ids, usage and finish of one streamed answer, out of raw SSE payloads. No I/O, no clock.

Payloads and their receive stamps are gathered on the hot path and absorbed here in batches: JSON is
decoded at the end of a response (or every few hundred events), never between two reads.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

DONE: Final = b"[DONE]"


class ReplyError(ValueError):
    """The server said something that is not a chunk, or said that it failed."""


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None


class Choice(msgspec.Struct):
    text: str | None = None
    delta: Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class ServerRecord(msgspec.Struct):
    """What the PDD router says about the request at its end; only what the live display needs is read."""

    switch_index: int | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: Usage | None = None
    pdd: ServerRecord | None = None
    error: Any = None


_CHUNK: Final = msgspec.json.Decoder(Chunk)
_CHUNKS: Final = msgspec.json.Decoder(list[Chunk])


def error_text(error: object) -> str:
    """One line out of an OpenAI error object, a string, or whatever came instead."""
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or error
        kind = error.get("type") or error.get("code")
        error = f"{kind}: {message}" if kind else message
    return " ".join(str(error).split())[:500]


class Reply:
    """The answer so far.

    `token_stamps` has one entry per output token when the tokens per chunk are known (ids, or
    continuous usage), else one per chunk that carried text: see `exact`.
    """

    __slots__ = (
        "_counted",
        "_last_merged",
        "_last_stamp",
        "cached_tokens",
        "done",
        "finish_reason",
        "first_output_ns",
        "ids",
        "ids_missing",
        "merged_reads",
        "prompt_tokens",
        "switch_index",
        "text",
        "token_stamps",
        "usage_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.token_stamps: list[int] = []
        self.ids: list[int] = []
        self.ids_missing = False  # a chunk carried text and no ids
        self.text: list[str] = []
        self.first_output_ns: int | None = None  # first token that is not reasoning
        self.finish_reason: str | None = None
        self.usage_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.switch_index: int | None = None  # first token of the main decoder, where the server says so
        self.merged_reads = 0  # stamps that stand for more than one token event
        self.done = False
        self._counted = 0  # tokens of usage seen so far, where usage comes with every chunk
        self._last_stamp = -1
        self._last_merged = -1

    def absorb(self, payloads: list[bytes], stamps: list[int]) -> None:
        """Interpret `payloads` received at `stamps` (ns); raises ReplyError on malformed or failing ones."""
        try:
            if payloads and payloads[-1] == DONE and DONE not in payloads[:-1]:
                self.done = True
                chunks = _CHUNKS.decode(b"[" + b",".join(payloads[:-1]) + b"]")
            else:
                chunks = _CHUNKS.decode(b"[" + b",".join(payloads) + b"]")
        except msgspec.MsgspecError:
            self._absorb_singly(payloads, stamps)
            return
        for chunk, stamp in zip(chunks, stamps, strict=False):
            self._take(chunk, stamp)

    def _absorb_singly(self, payloads: list[bytes], stamps: list[int]) -> None:
        """The same without the shortcut: empty payloads are pings, and a bad one is named."""
        for payload, stamp in zip(payloads, stamps, strict=True):
            if payload == DONE:
                self.done = True
            elif payload.strip():
                try:
                    chunk = _CHUNK.decode(payload)
                except msgspec.MsgspecError as error:
                    raise ReplyError(f"chunk {payload[:80]!r}: {error}") from None
                self._take(chunk, stamp)

    def _take(self, chunk: Chunk, stamp: int) -> None:
        if chunk.error is not None:
            raise ReplyError(error_text(chunk.error))
        counted = 0
        usage = chunk.usage
        if usage is not None:
            if usage.completion_tokens is not None:
                counted = usage.completion_tokens - self._counted
                self._counted = self.usage_tokens = usage.completion_tokens
            if usage.prompt_tokens is not None:
                self.prompt_tokens = usage.prompt_tokens
            if usage.prompt_tokens_details is not None:
                self.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if chunk.pdd is not None:
            self.switch_index = chunk.pdd.switch_index
        if chunk.choices:
            self._take_choice(chunk.choices[0], stamp, counted)

    def _take_choice(self, choice: Choice, stamp: int, counted: int) -> None:
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
        text = choice.text
        reasoning: str | None = None
        tools = False
        if choice.delta is not None:
            text = choice.delta.content or choice.delta.refusal
            reasoning = choice.delta.reasoning_content or choice.delta.reasoning
            tools = bool(choice.delta.tool_calls)
        ids = choice.token_ids
        if ids:
            self.ids.extend(ids)
            tokens = len(ids)
        elif text or reasoning or tools:
            self.ids_missing = True
            tokens = max(1, counted)
        else:
            return  # a role-only, empty or finishing chunk is not a token
        if text:
            self.text.append(text)
        if self.first_output_ns is None and (text or tools or not reasoning):
            self.first_output_ns = stamp
        if stamp == self._last_stamp and stamp != self._last_merged:
            self.merged_reads += 1
            self._last_merged = stamp
        self._last_stamp = stamp
        if tokens == 1:
            self.token_stamps.append(stamp)
        else:
            self.token_stamps.extend([stamp] * tokens)

    @property
    def output_tokens(self) -> int:
        """Tokens received: by ids, else by usage, else by chunks (the best there is while streaming)."""
        if self.ids and not self.ids_missing:
            return len(self.ids)
        return self.usage_tokens if self.usage_tokens is not None else len(self.token_stamps)

    @property
    def exact(self) -> bool:
        """Whether `token_stamps` is one per token.

        Without ids the server's own count decides; it may exceed the stamps by an end token without text.
        """
        if self.ids and not self.ids_missing:
            return True
        return self.usage_tokens is None or 0 <= self.usage_tokens - len(self.token_stamps) <= 1
