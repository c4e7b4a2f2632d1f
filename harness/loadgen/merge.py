"""One assessment out of many: a distributed run is as good as its worst shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.loadgen.assessment import Assessment, Spread, spread
from harness.loadgen.tally import Tally

MERGED: Final = "merged"


def merge_assessments(
    assessments: Sequence[Assessment], tally: Tally, lost: Mapping[str, str], *, interrupted: bool
) -> Assessment:
    """Sums of the counts, the worst of the rest. `lost` says of each lost shard what happened.

    `tally` is the merged one, the lost shards' last words included. At least one assessment.
    """
    reasons = [f"{one.shard}: {reason}" for one in assessments for reason in one.reasons]
    reasons += [f"{shard}: {why}" for shard, why in lost.items()]
    requests: dict[str, int] = {}
    errors: dict[str, int] = {}
    for one in assessments:
        for totals, counts in ((requests, one.requests), (errors, one.errors)):
            for key, count in counts.items():
                totals[key] = totals.get(key, 0) + count
    return Assessment(
        shard=MERGED,
        valid=not reasons,
        reasons=tuple(reasons),
        seed=assessments[0].seed,
        started_ns=min(one.started_ns for one in assessments),
        first_sent_ns=min(
            (one.first_sent_ns for one in assessments if one.first_sent_ns is not None), default=None
        ),
        ended_ns=max(one.ended_ns for one in assessments),
        interrupted=interrupted or any(one.interrupted for one in assessments),
        planned_sessions=tally.planned_sessions,
        planned_requests=tally.planned_requests,
        started_sessions=tally.started_sessions,
        requests=requests,
        not_sent=sum(one.not_sent for one in assessments),
        held=sum(one.held for one in assessments),
        errors=errors,
        lateness=spread(tally.lateness),
        loop_lag=_worst_spread([one.loop_lag for one in assessments]),
        cpu_share_p50=_worst([one.cpu_share_p50 for one in assessments]),
        cpu_share_p90=_worst([one.cpu_share_p90 for one in assessments]),
        clock_error_ms=max(one.clock_error_ms for one in assessments),
        clock_drift_ms=max((one.clock_drift_ms for one in assessments), key=abs),
        clock_offset_ms=_worst([one.clock_offset_ms for one in assessments]),
        events=sum(one.events for one in assessments),
        token_events=sum(one.token_events for one in assessments),
        merged_reads=sum(one.merged_reads for one in assessments),
        late_merges=sum(one.late_merges for one in assessments),
        kernel_stamps=all(one.kernel_stamps for one in assessments),
        niceness=max(one.niceness for one in assessments),
        connections=assessments[0].connections,
        recorded=sum(one.recorded for one in assessments),
        scrapes=sum(one.scrapes for one in assessments),
        scrape_errors=sum(one.scrape_errors for one in assessments),
        cpu_s=sum(one.cpu_s for one in assessments),
        peak_rss_mib=max(one.peak_rss_mib for one in assessments),
        lost_shards=tuple(lost),
    )


def _worst(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), key=abs, default=None)


def _worst_spread(spreads: Sequence[Spread]) -> Spread:
    return Spread(
        _worst([one.p50_ms for one in spreads]),
        _worst([one.p99_ms for one in spreads]),
        _worst([one.max_ms for one in spreads]),
    )
