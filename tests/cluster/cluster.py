"""A whole cluster in one event loop: real engines on their threads, real sockets, no processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from adapters.engines import load_engine, load_tokenizer
from adapters.links import open_link
from harness.cluster.front import Front
from harness.cluster.router import Router, RouterConfig
from harness.cluster.worker import Worker, WorkerConfig
from harness.cluster.worker_connection import WorkerAddress
from harness.engine import EngineOptions
from harness.kv_transport import KvTransport
from harness.link import LinkProfile
from harness.policy.config import MODES, PolicyConfig
from harness.policy.roles import Role

SECRET = "test-secret"


@dataclass
class Answer:
    ids: list[int] = field(default_factory=list)
    error: str | None = None
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    times: dict[str, Any] = field(default_factory=dict)


class Cluster:
    def __init__(self, router: Router, port: int, workers: dict[str, Worker], session: aiohttp.ClientSession):
        self.router = router
        self.port = port
        self.workers = workers
        self.session = session
        self.crashed: list[Worker] = []

    async def ask(
        self,
        prompt: list[int],
        max_tokens: int,
        *,
        session: str = "s",
        request: str | None = None,
        **more: Any,
    ) -> Answer:
        """One streamed completion."""
        answer = Answer()
        body = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "stream": True,
            "return_token_ids": True,
            "prompt_cache_key": session,
            **more,
        }
        headers = {"X-Request-Id": request} if request else {}
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        async with self.session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                answer.error = (await response.json())["error"]["message"]
                return answer
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = msgspec.json.decode(line[6:])
                if "error" in event:
                    answer.error = event["error"]["message"]
                    continue
                for choice in event["choices"]:
                    answer.ids += choice["token_ids"]
                    answer.finish = choice["finish_reason"] or answer.finish
                answer.usage = event.get("usage", answer.usage)
                answer.times = event.get("pdd", answer.times)
        return answer

    def crash(self, name: str) -> None:
        """The worker is gone from one moment to the next: its connections break, nothing more is said."""
        worker = self.workers.pop(name)
        self.crashed.append(worker)
        for handler in worker._runner.server.connections:
            if handler.transport is not None:
                handler.transport.abort()
        for site in list(worker._runner.sites):
            site._server.close()
        for transfer in list(worker._sender._transfers.values()):
            transfer.task.cancel()

    async def settled(self, timeout_s: float = 20.0) -> None:
        """Wait until the policy owns nothing any more."""
        async with asyncio.timeout(timeout_s):
            while self.router.requests_live:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def cluster(
    tmp_path: Path,
    mode: str,
    *,
    engine: str = "llamacpp",
    counts: dict[Role, int] | None = None,
    policy: dict[str, Any] | None = None,
    rate_bytes_s: float = 1e6,
    options: EngineOptions | None = None,
    link: LinkProfile | None = None,
    transport: Callable[[str], KvTransport | None] = lambda _: None,
    stall_s: float = 30.0,
) -> AsyncIterator[Cluster]:
    """A running cluster in `mode`; `policy` overrides its keys. The WAN is believed to carry `rate_bytes_s`,
    which decides what is relayed; the sockets are loopback's, MD behind a relay shaped to `link` if given."""
    preset = MODES[mode].policy
    config = (
        preset
        if policy is None
        else msgspec.convert(_merge(msgspec.to_builtins(preset), policy), PolicyConfig)
    )
    if config.colocated:
        wanted = counts or {Role.COLOCATED: 1}
    else:
        wanted = counts or {
            Role.PREFILL: 1,
            Role.RELAY_DECODE: int(config.relay or config.local),
            Role.MAIN_DECODE: 1,
        }
    options = options or EngineOptions(model="tiny", max_sequences=16, max_context_tokens=2048)
    async with AsyncExitStack() as stack:
        workers: dict[str, Worker] = {}
        addresses = []
        wan = None
        if link is not None:
            wan = await open_link("relay", link, run_dir=tmp_path, seed=1)
            stack.push_async_callback(wan.aclose)
        for role, n in wanted.items():
            for i in range(n):
                name = f"{role.value}-{i}"
                built = await asyncio.to_thread(load_engine, engine, options)
                worker = Worker(
                    WorkerConfig(name, "127.0.0.1", 0, SECRET, segment_tokens=128, stall_s=stall_s),
                    built,
                    transport(name),
                )
                host, port = "127.0.0.1", await worker.start()
                far = role is Role.MAIN_DECODE
                if wan is not None and far:
                    host, port = await wan.route(host, port)
                addresses.append(WorkerAddress(name, role, "B" if far else "A", host, port))
                workers[name] = worker
        stack.push_async_callback(_close_all, workers)
        router = Router(
            RouterConfig(
                host="127.0.0.1",
                port=0,
                secret=SECRET,
                policy=config,
                workers=tuple(addresses),
                run_dir=str(tmp_path),
                cell=mode,
                rep=0,
                model="tiny",
                wan_rate_bytes_s=rate_bytes_s,
                wan_rtt_ns=1_000_000,
                rejoin_s=0.1,
            )
        )
        stack.push_async_callback(router.aclose)
        await router.start()
        runner = web.AppRunner(
            Front(router, lambda: load_tokenizer(engine, options)).app(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.2,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        running = Cluster(router, runner.addresses[0][1], workers, session)
        yield running
        await _close_all({str(i): w for i, w in enumerate(running.crashed)})


async def _close_all(workers: dict[str, Worker]) -> None:
    for worker in list(workers.values()):
        with contextlib.suppress(OSError):
            await worker.aclose()


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        out[key] = _merge(out[key], value) if isinstance(value, dict) else value
    return out
