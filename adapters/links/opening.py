"""Open a link by the name of its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.links.agent import AgentLink
from harness.link import Link, LinkError, LinkProfile

if TYPE_CHECKING:
    from pathlib import Path

DRIVERS: Final = ("netem", "uml", "relay")
"""In the order in which 'auto' prefers them."""

_RELAY_START_TIMEOUT_S: Final = 20.0
_KERNEL_START_TIMEOUT_S: Final = 90.0


async def open_link(driver: str, profile: LinkProfile, *, run_dir: Path, seed: int) -> Link:
    """A live link shaped to `profile`. `driver` is one of DRIVERS, or 'auto' for the first that works here.

    Its agent's log goes to `run_dir/link/`. LinkError for an unknown driver, for one that does not work on
    this machine (with what to install), and for a parameter of the profile that the driver cannot do.
    """
    log = run_dir / "link" / f"{driver}.log"
    match driver:
        case "relay" | "auto":
            link = await AgentLink.open(
                "adapters.links.relay", str(seed), log=log, start_timeout_s=_RELAY_START_TIMEOUT_S
            )
        case "netem" | "uml":
            link = await AgentLink.open(
                "adapters.links.kernel", driver, str(seed), log=log, start_timeout_s=_KERNEL_START_TIMEOUT_S
            )
        case _:
            raise LinkError(f"link driver {driver!r}: unknown; known drivers: auto, {', '.join(DRIVERS)}")
    try:
        await link.apply(profile)
    except BaseException:
        await link.aclose()
        raise
    return link
