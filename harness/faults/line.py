"""The faults that hold on the link now: their distortions, one after the other, over the profile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from harness.faults.surroundings import FaultError
from harness.link import Direction, LinkProfile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.faults.kinds import LinkFault
    from harness.link import Link


def distorted(profile: LinkProfile, faults: Iterable[LinkFault]) -> LinkProfile:
    """The profile under these faults, named after all of them. FaultError for one that does not fit it."""
    directions: dict[str, Direction] = {"a_to_b": profile.a_to_b, "b_to_a": profile.b_to_a}
    name = profile.name
    for fault in faults:
        name = f"{name}+{fault.label}"
        for side, direction in directions.items():
            if fault.side.covers(side):
                try:
                    directions[side] = fault.distort(direction)
                except ValueError as error:
                    raise FaultError(f"fault {fault.label}: {side}: {error}") from None
    return LinkProfile(name=name, source=profile.source, **directions)


class FaultyLine:
    """Switches faults of one link on and off; both are idempotent."""

    def __init__(self, link: Link, profile: LinkProfile) -> None:
        self._link = link
        self._profile = profile
        self._holding: list[LinkFault] = []
        self._turn = asyncio.Lock()
        self.shaped: dict[str, LinkProfile] = {profile.name: profile}
        """All profiles that were in force, by name."""

    async def switch_on(self, fault: LinkFault) -> None:
        async with self._turn:
            if fault not in self._holding:
                await self._shape([*self._holding, fault])

    async def switch_off(self, fault: LinkFault) -> None:
        async with self._turn:
            if fault in self._holding:
                await self._shape([each for each in self._holding if each != fault])

    async def _shape(self, holding: list[LinkFault]) -> None:
        profile = distorted(self._profile, holding)
        await self._link.apply(profile)
        self._holding = holding
        self.shaped[profile.name] = profile
