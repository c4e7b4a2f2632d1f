"""What the relay cannot do, refused by name."""

from __future__ import annotations

from typing import Final

from harness.link import Direction, JitterDistribution, LinkError, LinkProfile

_UNSUPPORTED: Final = (
    "loss_pct",
    "burst_loss_enter_pct",
    "queue_packets",
    "reorder_pct",
    "duplicate_pct",
    "corrupt_pct",
)
"""What acts on single packets; a TCP relay sees none."""

_DISTRIBUTIONS: Final = (JitterDistribution.NORMAL, JitterDistribution.UNIFORM)


def refuse(profile: LinkProfile) -> None:
    """LinkError naming the first parameter that the relay cannot do."""
    for side in ("a_to_b", "b_to_a"):
        direction: Direction = getattr(profile, side)
        for name in _UNSUPPORTED:
            if getattr(direction, name):
                raise LinkError(
                    f"profile {profile.name!r}: {side}.{name}: the relay driver relays TCP and cannot do it; "
                    "use --link netem or uml"
                )
        if direction.jitter_distribution not in _DISTRIBUTIONS:
            raise LinkError(
                f"profile {profile.name!r}: {side}.jitter_distribution: the relay driver cannot do "
                f"{direction.jitter_distribution}; it can do: {', '.join(_DISTRIBUTIONS)}"
            )
