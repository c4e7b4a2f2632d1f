"""The router's HTTP face: OpenAI-compatible completions, health, and the cluster's administration."""

from __future__ import annotations

import functools
import re
import uuid
import zlib
from array import array
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from harness.cluster.exchange import End, Exchange, Failure, Tokens
from harness.cluster.messages import SECRET_HEADER, Sampling, knows_secret
from harness.cluster.openai import (
    BadRequestError,
    ChatMessage,
    ChatRequest,
    ChunkWriter,
    CompletionRequest,
    error_body,
    error_event,
)
from harness.cluster.router import Router
from harness.cluster.worker_connection import WorkerAddress, WorkerRefusedError
from harness.engine import Tokenizer
from harness.policy.journal import Row

_MAX_REQUEST_BYTES: Final = 64 << 20
_SESSION_IDS: Final = 64  # a request without a key is routed by its first ids
_DEFAULT_CHAT_TOKENS: Final = 256
_REQUEST_ID: Final = re.compile(r"[!-~]{1,512}")  # it names rows of the records and travels in every message


class Front:
    """Handlers of one router. Requests are checked here, completely, before the policy hears of them."""

    def __init__(self, router: Router, load_tokenizer: Callable[[], Tokenizer | None]) -> None:
        self._router = router
        self._load_tokenizer = load_tokenizer
        self._completion = msgspec.json.Decoder(CompletionRequest)
        self._chat = msgspec.json.Decoder(ChatRequest)

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """Loaded by the first request that needs text or the model's own end of answer."""
        return self._load_tokenizer()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_REQUEST_BYTES)
        app.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat_completions),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.post("/admin/join", self._join),
                web.post("/admin/drain/{worker}", self._drain),
            ]
        )
        return app

    # ------------------------------------------------------------ completions

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = _read(self._completion, await request.read())
            ids = self._ids(asked.prompt)
            return await self._answer(request, asked, ids, asked.max_tokens)
        except BadRequestError as error:
            return _error(400, error_body(str(error), "invalid_request_error"))

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = _read(self._chat, await request.read())
            ids = self._chat_ids(asked.messages)
            limits = (asked.max_completion_tokens, asked.max_tokens, _DEFAULT_CHAT_TOKENS)
            limit = next(limit for limit in limits if limit is not None)
            return await self._answer(request, asked, ids, limit)
        except BadRequestError as error:
            return _error(400, error_body(str(error), "invalid_request_error"))

    def _ids(self, prompt: str | list[int]) -> array[int]:
        if isinstance(prompt, str):
            if self._tokenizer is None:
                raise BadRequestError("prompt: this model has no tokenizer; send a list of token ids")
            return array("I", self._tokenizer.encode(prompt))
        return array("I", prompt)

    def _chat_ids(self, messages: list[ChatMessage]) -> array[int]:
        if self._tokenizer is None:
            raise BadRequestError("messages: this model has no tokenizer; send token ids to /v1/completions")
        return array("I", self._tokenizer.chat([(m.role, m.content) for m in messages]))

    async def _answer(
        self, request: web.Request, asked: CompletionRequest | ChatRequest, ids: array[int], max_tokens: int
    ) -> web.StreamResponse:
        self._check(asked, ids, max_tokens)
        name = request.headers.get("X-Request-Id") or uuid.uuid4().hex
        if not _REQUEST_ID.fullmatch(name):
            shown = ascii(name)[:40]
            raise BadRequestError(f"X-Request-Id: {shown}; 1 to 512 visible ASCII characters are needed")
        stop_ids = tuple(asked.stop_token_ids)
        if not asked.ignore_eos and self._tokenizer is not None:
            stop_ids += self._tokenizer.end_ids
        sampling = Sampling(max_tokens, asked.seed, asked.temperature, stop_ids)
        session = asked.prompt_cache_key or f"ids-{zlib.crc32(ids[:_SESSION_IDS].tobytes()):08x}"
        exchange = Exchange(session, ids, sampling)
        try:
            self._router.arrive(name, exchange)
        except KeyError:
            raise BadRequestError(f"X-Request-Id: {name} is in use") from None
        try:
            chunks = ChunkWriter(
                asked, name, None if asked.ignore_eos and asked.return_token_ids else self._tokenizer
            )
            if asked.stream:
                return await self._stream(request, exchange, chunks)
            return await self._whole(exchange, chunks)
        finally:
            self._router.leave(name, exchange)

    def _check(self, asked: CompletionRequest | ChatRequest, ids: array[int], max_tokens: int) -> None:
        info = next(iter(self._router.infos.values()))
        if asked.n != 1:
            raise BadRequestError(f"n: {asked.n}; this server answers each prompt once")
        if not ids:
            raise BadRequestError("prompt: empty; at least one token is needed")
        if max(ids) >= info.vocab_size:
            raise BadRequestError(
                f"prompt: token id {max(ids)} is outside the vocabulary of {info.vocab_size}"
            )
        if max_tokens < 1:
            raise BadRequestError(f"max_tokens: {max_tokens}; at least 1 is needed")
        if len(ids) + max_tokens > info.max_context_tokens:
            raise BadRequestError(
                f"prompt: {len(ids)} tokens and max_tokens {max_tokens} exceed the context of "
                f"{info.max_context_tokens}"
            )

    async def _stream(
        self, request: web.Request, exchange: Exchange, chunks: ChunkWriter
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        part = await exchange.parts.get()
        if isinstance(part, Failure):  # nothing has been sent yet: an honest status is still possible
            return _error(503, error_body(part.error, "server_error"))
        await response.prepare(request)
        if (opening := chunks.opening()) is not None:
            await response.write(opening)
        while True:
            match part:
                case Tokens():
                    await response.write(chunks.tokens(part.ids))
                case End():
                    await response.write(chunks.ending(part, _usage(exchange, part.times)))
                    break
                case Failure():
                    await response.write(error_event(part.error))
                    break
            part = await exchange.parts.get()
        await response.write_eof()
        return response

    async def _whole(self, exchange: Exchange, chunks: ChunkWriter) -> web.Response:
        while True:
            part = await exchange.parts.get()
            if isinstance(part, Failure):
                return _error(503, error_body(part.error, "server_error"))
            if isinstance(part, End):
                ids = exchange.context[exchange.prompt_tokens :]
                body = chunks.whole(ids, part, _usage(exchange, part.times))
                return web.Response(body=body, content_type="application/json")

    # ---------------------------------------------------------- administration

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": self._router.config.model, "object": "model", "owned_by": "pddbench"}
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, _: web.Request) -> web.Response:
        """Workers and their KV layouts; the runner waits for all of them."""
        infos = {name: msgspec.to_builtins(self._router.infos[name]) for name in self._router.workers_up}
        body = {"workers": infos, "requests": self._router.requests_live}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _join(self, request: web.Request) -> web.Response:
        self._check_secret(request)
        try:
            await self._router.join(msgspec.json.decode(await request.read(), type=WorkerAddress))
        except (msgspec.DecodeError, WorkerRefusedError) as error:
            return _error(400, error_body(str(error), "invalid_request_error"))
        return web.json_response({"joined": True})

    async def _drain(self, request: web.Request) -> web.Response:
        self._check_secret(request)
        worker = request.match_info["worker"]
        if not self._router.drain(worker):
            known = ", ".join(self._router.workers_up)
            error = f"worker: {worker} is not up; up are {known}"
            return _error(404, error_body(error, "invalid_request_error"))
        return web.json_response({"draining": True})

    def _check_secret(self, request: web.Request) -> None:
        if not knows_secret(request.headers, self._router.config.secret):
            raise web.HTTPForbidden(text=f"wrong {SECRET_HEADER}")


def _error(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequestError(str(error)) from error


def _usage(exchange: Exchange, times: Row) -> dict[str, Any]:
    """Cached tokens are the prefix hit of the worker that computed the prompt."""
    out = len(exchange.context) - exchange.prompt_tokens
    cached = times.get("prefill_cached_tokens", times.get("main_hit_tokens"))
    return {
        "prompt_tokens": exchange.prompt_tokens,
        "completion_tokens": out,
        "total_tokens": exchange.prompt_tokens + out,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
