"""`python -m adapters.links.kernel netem|uml SEED`: a real link as an agent of the runner."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from adapters.links.kernel import ports
from adapters.links.kernel.bridged import BridgedMiddle
from adapters.links.kernel.guest import GuestMiddle
from adapters.links.kernel.link import KernelLink
from adapters.links.kernel.namespace import may_make_namespaces
from adapters.links.messages import Hello, Refused
from adapters.links.precedence import take_precedence
from adapters.links.serving import requests_reader, say, serve
from harness.link import Cluster, LinkDescription, LinkError

_ENTER = Path(__file__).parents[1] / "enter.py"


def _prefix(netns: str, privilege: str) -> list[str]:
    user = [] if privilege == "root" else ["--user", f"/proc/{os.getpid()}/ns/user"]
    return [sys.executable, "-I", "-S", str(_ENTER), *user, "--net", netns]


async def main(driver: str, seed: int, privilege: str) -> None:
    reader = await requests_reader()
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    niceness = take_precedence(os.getpid())
    middle = BridgedMiddle(seed) if driver == "netem" else GuestMiddle(seed)
    link = KernelLink(driver, middle)
    try:
        await link.start()
        hello = Hello(
            hosts={Cluster(name): address for name, address in ports.ADDRESSES.items()},
            prefixes={Cluster.A: _prefix(link.a.path, privilege), Cluster.B: _prefix(link.b.path, privilege)},
            processes={"agent": os.getpid(), **middle.processes},
            description=LinkDescription(
                driver=driver,
                modelled=False,
                kernel=middle.kernel,
                details={
                    "qdiscs": "netem (delay, loss) > tbf (rate, queue), on both ports of a bridge",
                    "burst_ms": str(middle.burst_ms),
                    "mtu": str(ports.MTU),
                    "offloads": f"off: {', '.join(ports.OFF)}",
                    "niceness": niceness,
                    "namespaces": privilege,
                    "seed": str(seed),
                },
            ),
        )
        await serve(link, hello, reader)
    finally:
        await link.close()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), may_make_namespaces()))
    except LinkError as error:
        say(Refused(str(error)))
        sys.exit(1)
