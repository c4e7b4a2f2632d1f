from __future__ import annotations

import msgspec

from harness.loadgen.assessment import Assessment, Spread, judge
from harness.loadgen.histogram import Histogram
from harness.loadgen.job import Bounds
from harness.loadgen.merge import merge_assessments
from harness.loadgen.tally import MAX_KINDS, Tally, error_kind

COUNTS = (
    "seed",
    "started_ns",
    "ended_ns",
    "planned_sessions",
    "planned_requests",
    "started_sessions",
    "not_sent",
    "held",
    "events",
    "token_events",
    "merged_reads",
    "late_merges",
    "recorded",
    "scrapes",
    "scrape_errors",
)


def assessment(shard: str, **changes) -> Assessment:
    made = Assessment(
        shard=shard,
        valid=True,
        reasons=(),
        first_sent_ns=5,
        interrupted=False,
        requests={"ok": 3},
        errors={},
        lateness=Spread(1, 2, 3),
        loop_lag=Spread(1, 2, 3),
        cpu_share_p50=0.1,
        cpu_share_p90=0.2,
        clock_error_ms=0.1,
        clock_drift_ms=-0.2,
        clock_offset_ms=0.0,
        kernel_stamps=True,
        niceness=0,
        connections="reuse",
        cpu_s=1.0,
        peak_rss_mib=50.0,
        **dict.fromkeys(COUNTS, 1),
    )
    return msgspec.structs.replace(made, **changes)


def test_counts_add_up_and_the_worst_figure_counts():
    worse = assessment("b", requests={"ok": 1, "error": 2}, loop_lag=Spread(9, 9, 9), cpu_share_p90=0.8)
    merged = merge_assessments([assessment("a"), worse], Tally(), {}, interrupted=False)
    assert merged.requests == {"ok": 4, "error": 2}
    assert merged.loop_lag == Spread(9, 9, 9)
    assert merged.cpu_share_p90 == 0.8
    assert merged.recorded == 2
    assert merged.valid


def test_one_invalid_shard_makes_the_run_invalid_by_name():
    bad = assessment("b", valid=False, reasons=("lateness p99 9 ms > 5 ms",))
    merged = merge_assessments([assessment("a"), bad], Tally(), {}, interrupted=False)
    assert not merged.valid
    assert merged.reasons == ("b: lateness p99 9 ms > 5 ms",)


def test_a_lost_shard_makes_the_run_invalid():
    merged = merge_assessments([assessment("a")], Tally(), {"b": "worker lost"}, interrupted=False)
    assert merged.reasons == ("b: worker lost",)
    assert merged.lost_shards == ("b",)


def verdict(value_ns: int, cpu: float | None, clock_ms: float, late: int, events: int) -> tuple[str, ...]:
    histogram = Histogram()
    histogram.add(value_ns)
    return judge(
        Bounds(),
        lateness=histogram,
        loop_lag=histogram,
        cpu_share_p90=cpu,
        clock_error_ms=clock_ms,
        late_merges=late,
        token_events=events,
    )


def test_the_judge_names_each_figure_beside_its_bound():
    reasons = verdict(50_000_000, 0.99, 5.0, 50, 100)
    assert len(reasons) == 5
    assert reasons[0].startswith("lateness p99 ")
    assert reasons[0].endswith(" ms > 5 ms")
    assert verdict(1000, None, 0.0, 0, 0) == ()


def test_tallies_merge_counts_and_histograms():
    one, two = Tally(sent=1, by_status={"ok": 1}), Tally(sent=2, by_status={"ok": 1, "error": 1})
    two.ttft.add(5)
    one.merge(two)
    assert one.sent == 3
    assert one.by_status == {"ok": 2, "error": 1}
    assert one.ttft.count == 1
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Tally) == one


def test_errors_are_counted_by_kind_and_the_kinds_are_bounded():
    tally = Tally()
    for number in range(500):
        tally.count_end("error", f"kind{'x' * number}: detail")
    assert len(tally.errors) == MAX_KINDS + 1
    assert sum(tally.errors.values()) == 500


def test_errors_that_differ_in_a_figure_are_of_one_kind():
    assert error_kind("HTTP 503: overloaded") == "HTTP 503"
    assert error_kind("stream ended early, after 3 tokens") == error_kind(
        "stream ended early, after 4 tokens"
    )
