"""Which drivers work on this machine, and if not, why not and what would help."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import msgspec

from harness.link import LinkError

_TIMEOUT_S: Final = 30.0


class Finding(msgspec.Struct, frozen=True):
    """Of one driver."""

    driver: str
    usable: bool
    reason: str
    """What was found, or what is missing and what to install."""


async def probe(driver: str) -> Finding:
    """Tries what the driver needs in throwaway namespaces; boots no guest. LinkError for an unknown one."""
    match driver:
        case "relay":
            return Finding("relay", usable=True, reason="needs nothing; TCP over it is modelled, not real")
        case "netem" | "uml":
            return await _probe_kernel(driver)
        case _:
            raise LinkError(f"link driver {driver!r}: unknown; known drivers: netem, uml, relay")


async def _probe_kernel(driver: str) -> Finding:
    # A process of its own: making namespaces moves the process that makes them.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "adapters.links.kernel.probing",
        driver,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Finding(driver, usable=False, reason=f"the probe took more than {_TIMEOUT_S:g} s")
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip().splitlines() or ["nothing"]
        return Finding(driver, usable=False, reason=f"the probe failed: {said[-1]}")
    return msgspec.json.decode(out, type=Finding)
