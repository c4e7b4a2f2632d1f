"""`python -m harness.experiment.processes.router`: the router process."""

from __future__ import annotations

import asyncio
import functools
import sys

import msgspec
from aiohttp import web

from adapters.engines import load_tokenizer
from harness.cluster.front import Front
from harness.cluster.router import Router, RouterConfig
from harness.cluster.worker_connection import WorkerRefusedError
from harness.engine import EngineError, EngineOptions
from harness.experiment.processes.lifeline import read_config, say_ready, until_told
from reports.errors import RecordingError


class RouterProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The router, and the engine whose tokenizer it needs for text."""

    router: RouterConfig
    engine: str
    options: EngineOptions


async def _serve(config: RouterProcess) -> None:
    router = Router(config.router)
    front = Front(router, functools.partial(load_tokenizer, config.engine, config.options))
    runner = web.AppRunner(front.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    try:
        await router.start()
        await runner.setup()
        await web.TCPSite(runner, config.router.host, config.router.port, backlog=4096).start()
        say_ready(port=runner.addresses[0][1], infos=router.infos)
        await until_told(router.failed)
    finally:
        await runner.cleanup()
        await router.aclose()


def main() -> int:
    config = read_config(RouterProcess)
    try:
        asyncio.run(_serve(config))
    except (WorkerRefusedError, RecordingError, EngineError, OSError) as error:
        sys.stderr.write(f"router: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
