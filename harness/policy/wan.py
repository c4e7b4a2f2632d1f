"""How long a transfer across the WAN will take: measured rate, the queue in front, the bytes to send."""

from __future__ import annotations

from typing import Final

_BLEND: Final = 0.3  # weight of a new measurement of the rate
_MIN_WINDOW_NS: Final = 250_000_000  # shorter busy windows measure latency, not the line


class WanEstimate:
    """A leaky bucket in front of the line, drained at the measured rate.

    The rate starts as the driver measured it (LinkMeasured) and follows what crosses in windows
    during which the line was never idle and the bytes would have filled the window at the believed rate."""

    def __init__(self) -> None:
        self._rate_bytes_s = 0.0
        self._rtt_ns = 0
        self._backlog_bytes = 0.0
        self._backlog_at_ns = 0
        self._under_way: dict[int, float] = {}
        self._window_start_ns = 0
        self._window_bytes = 0

    def measured(self, rate_bytes_s: float, rtt_ns: int) -> None:
        self._rate_bytes_s = rate_bytes_s
        self._rtt_ns = rtt_ns

    def transfer_ns(self, now_ns: int, kv_bytes: float) -> int:
        """Estimated time until `kv_bytes` offered now have arrived. 0 while nothing is known of the line."""
        if self._rate_bytes_s <= 0:
            return 0
        self._drain(now_ns)
        return self._rtt_ns + int((self._backlog_bytes + kv_bytes) / self._rate_bytes_s * 1e9)

    def started(self, now_ns: int, work: int, kv_bytes: float) -> None:
        self._drain(now_ns)
        if not self._under_way:
            self._window_start_ns = now_ns
            self._window_bytes = 0
        self._under_way[work] = kv_bytes
        self._backlog_bytes += kv_bytes

    def ended(self, now_ns: int, work: int, kv_bytes: int) -> None:
        """The transfer ended after `kv_bytes` had crossed (fewer than announced when cut short)."""
        announced = self._under_way.pop(work, None)
        if announced is None:
            return
        self._drain(now_ns)
        self._backlog_bytes = max(0.0, self._backlog_bytes - max(0.0, announced - kv_bytes))
        if not self._under_way:
            self._backlog_bytes = 0.0
        self._window_bytes += kv_bytes
        elapsed_ns = now_ns - self._window_start_ns
        if elapsed_ns >= _MIN_WINDOW_NS and self._window_bytes * 1e9 >= self._rate_bytes_s * _MIN_WINDOW_NS:
            sample = self._window_bytes * 1e9 / elapsed_ns
            self._rate_bytes_s += _BLEND * (sample - self._rate_bytes_s)
            self._window_start_ns = now_ns
            self._window_bytes = 0

    def _drain(self, now_ns: int) -> None:
        drained = self._rate_bytes_s * (now_ns - self._backlog_at_ns) / 1e9
        self._backlog_bytes = max(0.0, self._backlog_bytes - drained)
        self._backlog_at_ns = now_ns
