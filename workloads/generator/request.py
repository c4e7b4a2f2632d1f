"""A preset with what the person asked to be different, and the trace of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from workloads.errors import TraceError
from workloads.generator.assemble import generate, generate_parts
from workloads.generator.parameters import Parameters, Skew, checked
from workloads.targets import Targets
from workloads.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator


def asked(
    p: Parameters,
    *,
    sessions: int | None = None,
    turns_mean: float | None = None,
    mean: float | None = None,
    above_95: float | None = None,
    below_50: float | None = None,
    bands: tuple[float, ...] | None = None,
    cv: float | None = None,
    rate_per_s: float | None = None,
) -> Parameters:
    """The parameters with these changes; a skew asked for becomes the target as well."""
    replace = msgspec.structs.replace
    if sessions is not None:
        p = replace(p, sessions=sessions)
    if turns_mean is not None:
        p = replace(p, turns_mean=turns_mean)
    if cv is not None:
        p = replace(p, arrivals=replace(p.arrivals, cv=cv))
    if rate_per_s is not None:
        p = replace(p, arrivals=replace(p.arrivals, rate_per_s=rate_per_s))
    summary = (mean, above_95, below_50)
    told = sum(v is not None for v in summary)
    if told and bands is not None:
        raise TraceError(
            "ask for a band histogram or for mean, above 95 % and below 50 %, not both", field="skew"
        )
    if told not in (0, len(summary)):
        raise TraceError("mean, above 95 % and below 50 % go together", field="skew")
    outputs = p.targets.output_below_500_share if p.targets is not None else None
    if told:
        skew = Skew(request_mean=mean, above_95_share=above_95, below_50_share=below_50)
        targets = Targets(
            request_mean=mean,
            above_95_share=above_95,
            below_50_share=below_50,
            output_below_500_share=outputs,
        )
        p = replace(p, skew=skew, targets=targets)
    if bands is not None:
        p = replace(
            p,
            skew=Skew(band_shares=bands),
            targets=Targets(band_shares=bands, output_below_500_share=outputs),
        )
    return checked(p)


PART_REQUESTS: Final = 500_000


def synthesise_parts(p: Parameters, *, name: str, seed: int, requests: int) -> Iterator[Trace]:
    """The same in parts that fit in memory, for `workloads.writers.native.write_parts`."""
    return generate_parts(
        p, name=f"{name}, seed {seed}", seed=seed, requests=requests, part_requests=PART_REQUESTS
    )


def synthesise(p: Parameters, *, name: str, seed: int, requests: int | None = None) -> Trace:
    """The trace of these parameters, named after the preset and the seed."""
    return generate(p, name=f"{name}, seed {seed}", seed=seed, requests=requests)
