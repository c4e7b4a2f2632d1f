"""`python -m adapters.links.relay SEED`: the relay as an agent of the runner."""

from __future__ import annotations

import asyncio
import os
import platform
import sys

from adapters.links.messages import Hello
from adapters.links.precedence import take_precedence
from adapters.links.relay.connection import SOCKET_BUFFER_BYTES
from adapters.links.relay.relay import HOST, Relay
from adapters.links.relay.timers import fine_event_loop
from adapters.links.serving import requests_reader, serve
from harness.link import Cluster, LinkDescription


async def main(seed: int) -> None:
    relay = Relay(seed)
    await relay.start()
    hello = Hello(
        hosts={Cluster.A: HOST, Cluster.B: HOST},
        prefixes={Cluster.A: [], Cluster.B: []},
        processes={"relay": os.getpid()},
        description=LinkDescription(
            driver="relay",
            modelled=True,
            kernel=f"{platform.system()} {platform.release()}",
            details={
                "model": "fair sharing by deficit round robin, order kept, slow start to 2 x rate x RTT",
                "socket_buffer_bytes": str(SOCKET_BUFFER_BYTES),
                "niceness": take_precedence(os.getpid()),
                "seed": str(seed),
            },
        ),
    )
    await serve(relay, hello, await requests_reader())


with asyncio.Runner(loop_factory=fine_event_loop) as runner:
    runner.run(main(int(sys.argv[1])))
