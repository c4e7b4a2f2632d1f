"""The OpenAI-compatible requests and stream chunks of the router, as data."""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from harness.cluster.exchange import End
from harness.engine import Tokenizer

# Whatever is beyond these would not fit the messages to the workers.
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Seed = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Temperature = Annotated[float, msgspec.Meta(ge=0.0)]
StopIds = Annotated[list[TokenId], msgspec.Meta(max_length=1024)]
CacheKey = Annotated[str, msgspec.Meta(max_length=1024)]


class BadRequestError(ValueError):
    """What the client sent cannot be served. One line: the field, what it is, what would be right."""


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class CompletionRequest(msgspec.Struct, frozen=True):
    """/v1/completions. `prompt` is text or token ids; unknown fields are ignored, as clients expect."""

    prompt: str | list[TokenId]
    model: str = ""
    max_tokens: int = 16
    temperature: Temperature = 0.0
    seed: Seed = 0
    stream: bool = False
    ignore_eos: bool = False
    stop_token_ids: StopIds = []
    return_token_ids: bool = False
    prompt_cache_key: CacheKey | None = None
    n: int = 1


class ChatRequest(msgspec.Struct, frozen=True):
    """/v1/chat/completions."""

    messages: list[ChatMessage]
    model: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: Temperature = 0.0
    seed: Seed = 0
    stream: bool = False
    ignore_eos: bool = False
    stop_token_ids: StopIds = []
    return_token_ids: bool = False
    prompt_cache_key: CacheKey | None = None
    n: int = 1


class ChunkWriter:
    """Words the parts of one answer as chunks (stream) or as one response."""

    def __init__(
        self, request: CompletionRequest | ChatRequest, response_id: str, tokenizer: Tokenizer | None
    ) -> None:
        self._chat = isinstance(request, ChatRequest)
        self._with_ids = request.return_token_ids or tokenizer is None
        self._tokenizer = tokenizer
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        kind = "chat.completion" if self._chat else "text_completion"
        self._base: dict[str, Any] = {"id": response_id, "model": request.model}
        self._kind = kind
        self._chunk_kind = f"{kind}.chunk" if self._chat else kind

    def text(self, ids: Sequence[int], *, last: bool = False) -> str:
        """Text of these ids; characters that are not whole yet come with the next."""
        if self._tokenizer is None:
            return ""
        return self._text.decode(self._tokenizer.decode(ids), last)

    def opening(self) -> bytes | None:
        """Chat streams begin with the role."""
        if not self._chat:
            return None
        return self._event({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def tokens(self, ids: array[int]) -> bytes:
        text = self.text(ids)
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        choice |= {"delta": {"content": text}} if self._chat else {"text": text}
        if self._with_ids:
            choice["token_ids"] = list(ids)
        return self._event(choice)

    def ending(self, end: End, usage: dict[str, Any]) -> bytes:
        """Finish reason, then usage with the server's own times, then the end mark."""
        rest = self.text((), last=True)
        choice: dict[str, Any] = {"index": 0, "finish_reason": end.reason}
        choice |= {"delta": {"content": rest}} if self._chat else {"text": rest}
        if self._with_ids:
            choice["token_ids"] = []
        tail = {**self._base, "object": self._chunk_kind, "choices": [], "usage": usage, "pdd": end.times}
        return self._event(choice) + _sse(tail) + b"data: [DONE]\n\n"

    def whole(self, ids: array[int], end: End, usage: dict[str, Any]) -> bytes:
        """The response of a request that does not stream."""
        text = self.text(ids, last=True)
        choice: dict[str, Any] = {"index": 0, "finish_reason": end.reason}
        choice |= {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        if self._with_ids:
            choice["token_ids"] = list(ids)
        body = {**self._base, "object": self._kind, "choices": [choice], "usage": usage, "pdd": end.times}
        return msgspec.json.encode(body)

    def _event(self, choice: dict[str, Any]) -> bytes:
        return _sse({**self._base, "object": self._chunk_kind, "choices": [choice]})


def error_body(message: str, kind: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": kind}})


def error_event(message: str) -> bytes:
    """An error inside a stream that has begun."""
    return b"data: " + error_body(message, "server_error") + b"\n\n"


def _sse(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
