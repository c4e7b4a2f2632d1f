"""Everything the generator can be told; the values of a preset are one TOML file of these names."""

from __future__ import annotations

import enum
from itertools import pairwise
from typing import Annotated, Final

import msgspec

from workloads.errors import TraceError
from workloads.statistics.hits import BAND_NAMES
from workloads.targets import Share, Targets

BANDS: Final = len(BAND_NAMES)

# Ranges are part of the types, so that a value that is none (nan, inf) is refused by the place it stands in.
Correlation = Annotated[float, msgspec.Meta(ge=-1, le=1)]
Exponent = Annotated[float, msgspec.Meta(ge=0, le=20)]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]


class Lognormal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """median x exp(sigma x normal)."""

    median: Number
    sigma: Exponent
    share: Share = 1.0


class Overflow(enum.StrEnum):
    """What a session does when the next prompt and answer pass the context limit."""

    COMPACT = "compact"
    END = "end"


class Process(enum.StrEnum):
    """How sessions arrive."""

    GAMMA = "gamma"
    WEIBULL = "weibull"


class Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tools and system prompt at the head of a session.

    groups   how many distinct heads there are, chosen by Zipf popularity; 0: every session has its own (cold)
    """

    tokens: Lognormal
    groups: Count = 8
    zipf: Exponent = 1.0


class First(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Length of a session's first prompt, head included."""

    fresh: Lognormal
    resumed: Lognormal | None = None
    resumed_share: Share = 0.0


class Growth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Growth of the prompt from turn to turn, the previous answer included.

    session_share  share of the variance of log growth that lies between sessions
    rho            lag-1 correlation of log growth within the trace
    relative       growth as a part of the context before, instead of the mixture
    least_new      growth is the previous answer and this many tokens at least, so that every answer stays
                   in the context; None: growth may be less, as where thinking is taken out again
    """

    mixture: tuple[Lognormal, ...] = ()
    relative: Lognormal | None = None
    session_share: Share = 0.34
    rho: Correlation = 0.35
    least_new: Count | None = None


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer lengths; rho is the correlation with the growth that follows."""

    mixture: tuple[Lognormal, ...]
    scale: Positive = 1.0
    rho: Correlation = 0.25


class Gaps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Waits between the end of an answer and the next turn, in seconds."""

    tool_s: tuple[Lognormal, ...]
    user_s: tuple[Lognormal, ...]
    user_share: Share = 0.15


class Breaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of the non-first turns that lose their prefix.

    head_share        the context is rewritten after the head, its length kept
    compaction_share  the context is summarised to `compaction` of its length after the head
    rewrite_share     the whole prompt is new, head included: as after an eviction
    """

    head_share: Share = 0.0119
    compaction_share: Share = 0.0046
    compaction: Lognormal = Lognormal(0.23, 0.4)
    rewrite_share: Share = 0.0


class UltraShort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests of long input and an answer of a few tokens, each standing alone.

    share   of all requests
    hit     leading share of the input taken from one of `documents` popular documents; 0: cold
    """

    share: Share
    input: Lognormal
    output_min: Tokens = 1
    output_max: Tokens = 31
    hit: Share = 0.0
    documents: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 16
    zipf: Exponent = 1.0


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Session arrivals: a renewal process with this coefficient of variation, per client.

    clients        independent sources; their rates follow a Zipf law of exponent client_zipf
    diurnal_swing  amplitude of a daily rate wave, 0..1 of the mean
    """

    rate_per_s: Positive
    process: Process = Process.GAMMA
    cv: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0
    clients: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    client_zipf: Exponent = 1.0
    diurnal_swing: Share = 0.0
    diurnal_period_s: Positive = 86_400.0


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long an answer is taken to last: ttft_s + tokens x tpot_s. Places later turns in recorded time."""

    ttft_s: Number = 2.0
    tpot_s: Number = 0.02


class Skew(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The distribution of hit rates asked for, in one of three ways. Lengths give way to it.

    band_shares  shares of requests in the seven bands 0-90, 90-95, 95-96 … 99-100 %
    request_mean, above_95_share, below_50_share   these three, the shape in between as the model has it
    quantiles    points (share of requests, hit rate) of the quantile function, straight lines between
    """

    band_shares: tuple[float, ...] | None = None
    request_mean: float | None = None
    above_95_share: float | None = None
    below_50_share: float | None = None
    quantiles: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        summary = (self.request_mean, self.above_95_share, self.below_50_share)
        told = [self.band_shares is not None, all(v is not None for v in summary), self.quantiles is not None]
        if sum(told) != 1 or (not told[1] and any(v is not None for v in summary)):
            raise TraceError(
                "needs band_shares, or request_mean with above_95_share and below_50_share, or quantiles",
                field="skew",
            )
        if self.band_shares is not None:
            sound = all(share >= 0 for share in self.band_shares) and abs(sum(self.band_shares) - 1) <= 0.01
            if len(self.band_shares) != BANDS or not sound:
                raise TraceError(
                    f"must be {BANDS} shares that sum to 1", field="skew.band_shares", value=self.band_shares
                )
        if self.quantiles is not None:
            points = self.quantiles
            ascending = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(points))
            if len(points) < 2 or points[0][0] != 0 or points[-1][0] != 1 or not ascending:
                raise TraceError(
                    "must ascend from share 0 to share 1", field="skew.quantiles", value=self.quantiles
                )
        rates = [v for v in summary if v is not None] + [h for _, h in self.quantiles or ()]
        if not all(0 <= v <= 1 for v in rates):
            raise TraceError("rates and shares are 0..1", field="skew", value=rates)


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of traffic. Lengths in tokens, waits in seconds."""

    about: str
    sessions: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]
    block_size: Tokens
    context_tokens: Tokens
    turns_mean: Annotated[float, msgspec.Meta(ge=1, le=1_000_000)]
    shared: Shared
    first: First
    growth: Growth
    output: Output
    gaps: Gaps
    arrivals: Arrivals
    service: Service = Service()
    breaks: Breaks = Breaks()
    ultra_short: UltraShort | None = None
    skew: Skew | None = None
    targets: Targets | None = None
    overflow: Overflow = Overflow.COMPACT

    def __post_init__(self) -> None:
        if self.context_tokens < 8 * self.block_size:
            raise TraceError(
                f"must hold 8 blocks of {self.block_size} at least",
                field="context_tokens",
                value=self.context_tokens,
            )
        if not self.growth.mixture and self.growth.relative is None:
            raise TraceError("needs a mixture or relative", field="growth")
        if self.first.resumed_share > 0 and self.first.resumed is None:
            raise TraceError("a resumed_share needs first.resumed", field="first.resumed_share")
        if self.ultra_short is not None and self.ultra_short.share >= 1:
            raise TraceError("must leave room for sessions, below 1", field="ultra_short.share")
        short = self.ultra_short
        if short is not None and short.output_min > short.output_max:
            raise TraceError(
                "must not be above output_max", field="ultra_short.output_min", value=short.output_min
            )


def checked(p: Parameters) -> Parameters:
    """The same, checked as strictly as a file is: what is made in Python is not, by itself."""
    try:
        return msgspec.convert(msgspec.to_builtins(p), Parameters)
    except msgspec.ValidationError as e:
        raise TraceError(f"not generator parameters: {e}") from e
