"""Requests as bytes: the HTTP head and the JSON body of each API, with everything constant laid out ahead."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from harness.loadgen.conversation import Conversation, IdConversation, Prompt, TextConversation
from harness.loadgen.job import JobError

if TYPE_CHECKING:
    from harness.loadgen.job import LoadJob, Target
    from workloads.replay import ReplaySession

_PATHS: Final = {"pdd": "/completions", "completions": "/completions", "chat": "/chat/completions"}
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class Address(NamedTuple):
    """Where the base URL points."""

    host: str
    port: int
    tls: bool
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Raises JobError when `url` is not an http(s) one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise JobError(f"target.base_url {url!r}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise JobError(f"target.base_url {url!r}: expected http://HOST[:PORT][/v1] or https://…")
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


def read_api_key(target: Target) -> str | None:
    """The key itself, from the environment or a file; it goes into the request's head and nowhere else."""
    if target.api_key_env is not None and target.api_key_file is not None:
        raise JobError("target: api_key_env and api_key_file exclude each other")
    key: str | None = None
    if target.api_key_env is not None:
        key = os.environ.get(target.api_key_env, "").strip()
        if not key:
            raise JobError(f"target.api_key_env: {target.api_key_env} is not set in the environment")
    elif target.api_key_file is not None:
        try:
            key = target.api_key_file.read_text().strip()
        except OSError as error:
            raise JobError(f"target.api_key_file {target.api_key_file}: {error.strerror}") from None
    if key is not None and not _TOKEN.fullmatch(key):
        raise JobError("target: the API key must be one word of printable ASCII")
    return key


class Dialect:
    """Writes the requests of one job."""

    def __init__(self, job: LoadJob) -> None:
        target = job.target
        self.address: Final = parse_url(target.base_url)
        self._ids: Final = target.api == "pdd" or (target.api == "completions" and target.token_ids)
        self._chat: Final = target.api == "chat"
        self._seed: Final = job.seed
        self._per_request: Final = job.request_seed == "per_request"
        root = self.address.path or "/v1"
        key = read_api_key(target)
        self.secret: Final = key
        self._head: Final = (
            f"POST {root}{_PATHS[target.api]} HTTP/1.1\r\nHost: {self.address.host_header}\r\n"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\nUser-Agent: pddbench\r\n"
            + (f"Authorization: Bearer {key}\r\n" if key else "")
            + ("Connection: close\r\n" if job.connections == "fresh" else "")
            + "X-Request-Id: "
        ).encode()
        fields: dict[str, object] = {"model": target.model, "stream": True, "temperature": job.temperature}
        if target.api != "pdd":
            fields["stream_options"] = {"include_usage": True}
            if target.continuous_usage:
                fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if target.api == "pdd" or target.ignore_eos:
            fields["ignore_eos"] = True
        if self._ids:
            fields["return_token_ids"] = True
        fields.update(target.extra_body)
        self._constant: Final = msgspec.json.encode(fields)[:-1]
        self._prompt_key: Final = b',"messages":' if self._chat else b',"prompt":'

    def conversation(self, session: ReplaySession) -> Conversation:
        return IdConversation(session) if self._ids else TextConversation(session, chat=self._chat)

    def request(
        self, request_id: str, session_id: str, trace_request: str, prompt: Prompt, output_tokens: int
    ) -> tuple[bytes, bytes]:
        """Head and body. The seed depends on the trace's turn alone: cells and repetitions pair up."""
        seed = request_seed(self._seed, trace_request) if self._per_request else self._seed
        tail = b',"max_tokens":%d,"seed":%d' % (output_tokens, seed)
        if self._ids:
            tail += b',"prompt_cache_key":' + msgspec.json.encode(session_id)
        body = b"".join((self._constant, tail, self._prompt_key, prompt.json, b"}"))
        head = self._head + b"%s\r\nContent-Length: %d\r\n\r\n" % (request_id.encode("ascii"), len(body))
        return head, body


def request_seed(seed: int, trace_request: str) -> int:
    """31 bits that differ between turns and agree between repetitions."""
    digest = hashlib.blake2b(
        trace_request.encode(), digest_size=4, key=seed.to_bytes(16, "little", signed=True)
    )
    return int.from_bytes(digest.digest(), "little") & 0x7FFFFFFF
