"""`python -m harness.experiment.processes.worker`: one worker process. Composition root of its engine."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from adapters.engines import load_engine
from adapters.transports import load_transport
from harness.cluster.worker import Worker, WorkerConfig
from harness.engine import Engine, EngineError, EngineOptions
from harness.experiment.processes.lifeline import REFUSED, read_config, say_ready, until_told
from harness.kv_transport import KvTransport, TransportError


class WorkerProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engine: str
    options: EngineOptions
    worker: WorkerConfig
    transport: str


async def _serve(config: WorkerProcess, engine: Engine, transport: KvTransport | None) -> None:
    worker = Worker(config.worker, engine, transport)
    try:
        say_ready(port=await worker.start())
        await until_told(worker.failed)
    finally:
        await worker.aclose()


def main() -> int:
    config = read_config(WorkerProcess)
    try:
        transport = load_transport(config.transport, config.worker.name)
        engine = load_engine(config.engine, config.options)
    except (EngineError, TransportError) as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    try:
        asyncio.run(_serve(config, engine, transport))
    except (EngineError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
