"""The tally as rows of Locust's statistics: TTFT, ITL, handoff gap and whole requests, once a second.

For the web interface only: Locust rounds response times to two digits. The run's figures come from its
records.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from locust.stats import RequestStats, bucket_response_time

from harness.loadgen.histogram import Histogram, bucket_value

if TYPE_CHECKING:
    from harness.loadgen.tally import Tally

_MS: Final = 1e6
ROWS: Final = (("ttft", "TTFT"), ("itl", "ITL"), ("handoff_gap", "handoff gap"), ("e2e", "whole request"))


class LiveStats:
    """Adds to Locust's statistics what a tally has gained since the last time."""

    def __init__(self, stats: RequestStats) -> None:
        self._stats: Final = stats
        self._seen: dict[str, dict[int, int]] = {}
        self._errors: dict[str, int] = {}

    def update(self, tally: Tally) -> None:
        for field, name in ROWS:
            histogram: Histogram = getattr(tally, field)
            entries = [self._stats.get(name, "stream")]
            if field == "ttft":
                entries.append(
                    self._stats.total
                )  # one row a request: charts of the total show requests and TTFT
            seen = self._seen.setdefault(field, {})
            for bucket, count in histogram.buckets.items():
                gained = count - seen.get(bucket, 0)
                if gained > 0:
                    seen[bucket] = count
                    for entry in entries:
                        _add(entry, bucket_value(bucket) / _MS, gained)
        for kind, count in tally.errors.items():
            for _ in range(count - self._errors.get(kind, 0)):
                self._stats.log_error("stream", "whole request", kind)
            self._errors[kind] = count


def _add(entry: Any, value_ms: float, times: int) -> None:
    """What `entry.log` does, many times at once."""
    now = time.time()
    if (
        entry.use_response_times_cache
        and entry.last_request_timestamp
        and int(now) > int(entry.last_request_timestamp)
    ):
        entry._cache_response_times(int(now) - 1)  # noqa: SLF001 - as StatsEntry.log does
    entry.num_requests += times
    entry.num_reqs_per_sec[int(now)] += times
    entry.last_request_timestamp = now
    entry.total_response_time += value_ms * times
    entry.min_response_time = (
        value_ms if entry.min_response_time is None else min(entry.min_response_time, value_ms)
    )
    entry.max_response_time = max(entry.max_response_time, value_ms)
    entry.response_times[bucket_response_time(value_ms)] += times
