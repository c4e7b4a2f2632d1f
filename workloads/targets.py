"""Figures a trace was made to have, kept with it so that its statistics can show target against achieved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from workloads.statistics.hits import BAND_NAMES

if TYPE_CHECKING:
    from workloads.statistics.hits import HitStatistics


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Targets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Targets under the infinite cache; None: not aimed at. Shares and rates are 0..1."""

    request_mean: Share | None = None
    above_95_share: Share | None = None
    below_50_share: Share | None = None
    output_below_500_share: Share | None = None
    band_shares: tuple[Share, ...] | None = None


class Aim(msgspec.Struct, frozen=True):
    """One target beside what came out."""

    name: str
    target: float
    achieved: float


def aims(targets: Targets, hits: HitStatistics, output_below_500_share: float) -> tuple[Aim, ...]:
    """Every target that was set, beside the figure of the trace."""
    pairs = [
        ("request mean hit", targets.request_mean, hits.request_mean),
        ("requests above 95 %", targets.above_95_share, hits.above_95_share),
        ("requests below 50 %", targets.below_50_share, hits.below_50_share),
        ("outputs below 500 tokens", targets.output_below_500_share, output_below_500_share),
    ]
    if targets.band_shares is not None:
        pairs += [
            (f"band {name}", target, achieved)
            for name, target, achieved in zip(BAND_NAMES, targets.band_shares, hits.band_shares, strict=True)
        ]
    return tuple(Aim(name, target, achieved) for name, target, achieved in pairs if target is not None)
