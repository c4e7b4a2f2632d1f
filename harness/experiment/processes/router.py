"""`python -m harness.experiment.processes.router`: the router process."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from harness.cluster.front import Front
from harness.cluster.router import Router, RouterConfig
from harness.cluster.worker_connection import WorkerRefusedError
from harness.experiment.processes.lifeline import read_config, say_ready, until_told
from reports.errors import RecordingError


async def _serve(config: RouterConfig) -> None:
    router = Router(config)
    runner = web.AppRunner(
        Front(router, None).app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2
    )
    try:
        await router.start()
        await runner.setup()
        await web.TCPSite(runner, config.host, config.port, backlog=4096).start()
        say_ready(port=runner.addresses[0][1], infos=router.infos)
        await until_told(router.failed)
    finally:
        await runner.cleanup()
        await router.aclose()


def main() -> int:
    config = read_config(RouterConfig)
    try:
        asyncio.run(_serve(config))
    except (WorkerRefusedError, RecordingError, OSError) as error:
        sys.stderr.write(f"router: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
