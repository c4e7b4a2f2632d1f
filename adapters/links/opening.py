"""Open a link by the name of its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from adapters.links.agent import AgentLink
from adapters.links.probing import probe
from adapters.links.relay.refusal import refuse
from harness.link import Link, LinkError, LinkProfile

if TYPE_CHECKING:
    from pathlib import Path

DRIVERS: Final = ("netem", "uml", "relay")
"""In the order in which 'auto' prefers them."""

_MODULES: Final = {
    "netem": "adapters.links.kernel",
    "uml": "adapters.links.kernel",
    "relay": "adapters.links.relay",
}
_START_TIMEOUT_S: Final = {"netem": 30.0, "uml": 90.0, "relay": 20.0}


async def open_link(driver: str, profile: LinkProfile, *, run_dir: Path, seed: int) -> Link:
    """A live link shaped to `profile`. `driver` is one of DRIVERS, or 'auto' for the first that works here.

    Its agent's log goes to `run_dir/link/`. LinkError for an unknown driver, for one that does not work on
    this machine (with what to install), and for a parameter of the profile that the driver cannot do.
    """
    if driver == "auto":
        return await _open_first(profile, run_dir, seed)
    if driver not in _MODULES:
        raise LinkError(f"link driver {driver!r}: unknown; known drivers: auto, {', '.join(DRIVERS)}")
    return await _open(driver, profile, run_dir, seed)


def check(driver: str, profile: LinkProfile) -> None:
    """LinkError naming the first parameter of `profile` that the driver cannot do, before anything is opened.

    'auto' cannot be told before: ask with the driver of the open link's description.
    """
    if driver == "relay":
        refuse(profile)


async def _open_first(profile: LinkProfile, run_dir: Path, seed: int) -> Link:
    passed_over = []
    for driver in DRIVERS:
        finding = await probe(driver)
        if not finding.usable:
            passed_over.append(f"{driver}: {finding.reason}")
            continue
        try:
            link = await _open(driver, profile, run_dir, seed)
        except LinkError as error:
            passed_over.append(f"{driver}: {error}")
            continue
        if passed_over:
            why = {"passed_over": "; ".join(passed_over)}
            link.description = msgspec.structs.replace(
                link.description, details={**link.description.details, **why}
            )
        return link
    raise LinkError(f"no link driver works here: {'; '.join(passed_over)}")


async def _open(driver: str, profile: LinkProfile, run_dir: Path, seed: int) -> AgentLink:
    check(driver, profile)
    arguments = [str(seed)] if driver == "relay" else [driver, str(seed)]
    log = run_dir / "link" / f"{driver}.log"
    link = await AgentLink.open(
        _MODULES[driver], *arguments, log=log, start_timeout_s=_START_TIMEOUT_S[driver]
    )
    try:
        await link.apply(profile)
    except BaseException:
        await link.aclose()
        raise
    return link
