"""The load generator watching itself: loop lag, lateness, CPU share, clock; a sample every second."""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Final

from harness.loadgen.frames import SampleRow
from harness.loadgen.histogram import Histogram
from harness.loadgen.reactor import Reactor, Timer, now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.loadgen.stamps import StampClock
    from harness.loadgen.tally import Tally

SAMPLE_NS: Final = 1_000_000_000
_PROBE_NS: Final = 50_000_000  # something is due at least this often, so that lag is always seen
_CLOCK_EVERY_PROBES: Final = 5
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Instrument:
    """Samples until stopped; `on_sample` gets each row."""

    def __init__(
        self,
        reactor: Reactor,
        clock: StampClock,
        tally: Tally,
        shard: str,
        *,
        refresh: Callable[[], None],
        on_sample: Callable[[SampleRow], None],
    ) -> None:
        self._reactor: Final = reactor
        self._clock: Final = clock
        self._tally: Final = tally
        self._shard: Final = shard
        self._refresh: Final = refresh
        self._on_sample: Final = on_sample
        self._probes = 0
        self._timer: Timer | None = None
        self._worst_lag_ns = 0
        self._worst_lateness_ns = 0
        self._sampled_ns = now_ns()
        self._cpu_ns = time.process_time_ns()
        self.loop_lag: Final = Histogram()
        self.cpu_shares: list[float] = []
        self.peak_rss_bytes = 0
        self.cpu_s = 0.0

    def start(self) -> None:
        self._reactor.worst_lag_ns = 0
        self._sampled_ns = now_ns()
        self._cpu_ns = time.process_time_ns()
        self._timer = self._reactor.call_at(self._sampled_ns + _PROBE_NS, self._probe)

    def stop(self) -> None:
        """Take the last sample, of whatever time has passed since the one before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._sample(now_ns())

    def sent_late(self, lateness_ns: int) -> None:
        self._tally.lateness.add(lateness_ns)
        self._worst_lateness_ns = max(self._worst_lateness_ns, lateness_ns)

    def _probe(self) -> None:
        now = now_ns()
        lag_ns, self._reactor.worst_lag_ns = self._reactor.worst_lag_ns, 0
        self.loop_lag.add(lag_ns)
        self._worst_lag_ns = max(self._worst_lag_ns, lag_ns)
        self._probes += 1
        if not self._probes % _CLOCK_EVERY_PROBES:
            self._clock.refresh()
        if now - self._sampled_ns >= SAMPLE_NS:
            self._sample(now)
        self._timer = self._reactor.call_at(now + _PROBE_NS, self._probe)

    def _sample(self, now: int) -> None:
        cpu_ns = time.process_time_ns()
        share = (cpu_ns - self._cpu_ns) / max(1, now - self._sampled_ns)
        if now - self._sampled_ns >= SAMPLE_NS // 2:  # a last sliver says nothing about the share
            self.cpu_shares.append(share)
        self.cpu_s += (cpu_ns - self._cpu_ns) / 1e9
        self._cpu_ns, self._sampled_ns = cpu_ns, now
        self._refresh()
        rss = resident_bytes()
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
        lag_ns, self._worst_lag_ns = self._worst_lag_ns, 0
        late_ns, self._worst_lateness_ns = self._worst_lateness_ns, 0
        tally = self._tally
        self._on_sample(
            SampleRow(
                self._clock.epoch_ns(now), self._shard, lag_ns, late_ns, share, tally.in_flight,
                tally.live_sessions, tally.events, tally.merged_reads, rss,
            )
        )  # fmt: skip

    def cpu_share(self, quantile: float) -> float | None:
        if not self.cpu_shares:
            return None
        return sorted(self.cpu_shares)[min(len(self.cpu_shares) - 1, int(quantile * len(self.cpu_shares)))]


def resident_bytes() -> int:
    """Resident memory now (Linux), else its peak."""
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - once a second, in the loop
            return int(file.read().split()[1]) * _PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
