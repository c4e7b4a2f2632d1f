"""Timers of which nearly all are set anew or cleared before they ring, so that they cost little until then.

Alarms set with the same delay ring in the order in which they were set: each delay keeps a dictionary in
that order, and what has to be looked at is the first alarm of each. Few delays are in use at a time.
"""

from __future__ import annotations

from collections.abc import Callable

_Alarm = tuple[int, str, Callable[[str], None]]


class Alarms:
    """One alarm a name."""

    __slots__ = ("_by_delay", "_delays")

    def __init__(self) -> None:
        self._by_delay: dict[int, dict[str, _Alarm]] = {}
        self._delays: dict[str, int] = {}

    def set(self, name: str, at_ns: int, delay_ns: int, call: Callable[[str], None]) -> None:
        """`at_ns` is `delay_ns` from now; an earlier alarm of this name is replaced."""
        self.clear(name)
        alarms = self._by_delay.get(delay_ns)
        if alarms is None:
            alarms = self._by_delay[delay_ns] = {}
        alarms[name] = (at_ns, name, call)
        self._delays[name] = delay_ns

    def clear(self, name: str) -> None:
        delay_ns = self._delays.pop(name, None)
        if delay_ns is not None:
            del self._by_delay[delay_ns][name]

    def first(self) -> _Alarm | None:
        """The next one to ring; of several at one instant, the one of the least delay."""
        for delay_ns in [d for d, alarms in self._by_delay.items() if not alarms]:
            del self._by_delay[delay_ns]
        return min(
            (next(iter(alarms.values())) for _, alarms in sorted(self._by_delay.items())),
            key=lambda alarm: alarm[0],
            default=None,
        )

    def __len__(self) -> int:
        return len(self._delays)
