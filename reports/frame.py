"""What a metric's formula sees: one array entry per request of one cell, by who observed it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from reports.columns import Codes, Columns, Floats, Mask
from reports.token_scan import TokenScan, scan_tokens

_FAILED: Final = ("error", "timeout")
_BLOCK: Final = 1 << 16


Rows = slice | npt.NDArray[np.int64]


class Frame:
    """Requests of a cell (all of phase 'measure', or those in the places `rows`).

    Null is NaN; instants are ns since their repetition's first intended send. `groups` are the clusters
    for resampling, numbered from 0 over all cells of a comparison.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        slo: Mapping[str, float],
        windows_s: Mapping[int, float],
        groups: npt.NDArray[np.int32] | None = None,
        group_count: int = 1,
        rows: Rows | None = None,
        cost_per_hour: float | None = None,
        has_wan: bool = True,
        parent: Frame | None = None,
        held: dict[tuple[str, str], Floats] | None = None,
    ) -> None:
        self.columns: Final = columns
        self.slo: Final = slo
        self.windows_s: Final = windows_s
        """Length of the measured window of each repetition."""
        self.window_s: Final = sum(windows_s.values())
        self.cost_per_hour: Final = cost_per_hour
        self.has_wan: Final = has_wan
        """Whether a WAN lies between the workers of the cell."""
        self.all_groups: Final = np.zeros(columns.rows, np.int32) if groups is None else groups
        self.group_count: Final = group_count
        self.rows: Final[Rows] = slice(0, columns.rows) if rows is None else rows
        self.accessed: Final[set[str]] = set() if parent is None else parent.accessed
        """Columns that formulas have asked for, as 'table.column'."""
        self._parent: Final = parent
        self._held: Final = held
        """What the pieces of a frame have read: read once, however many they are."""
        self._scanning: Final = threading.Lock()
        self._scan: TokenScan | None = None

    def __len__(self) -> int:
        rows = self.rows
        return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)

    def blocks(self) -> Iterator[tuple[slice, Frame]]:
        """The frame in pieces whose columns fit the processor's cache, each with its place in the frame."""
        held: dict[tuple[str, str], Floats] = {}
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            rows = self.rows
            if isinstance(rows, slice):
                yield slice(start, stop), self._narrowed(slice(rows.start + start, rows.start + stop), held)
            else:
                yield slice(start, stop), self._narrowed(rows[start:stop], held)

    def chosen(self, rows: Mask) -> Frame:
        """The rows of this frame where `rows` holds."""
        places = np.flatnonzero(rows)
        return self._narrowed(places + self.rows.start if isinstance(self.rows, slice) else self.rows[places])

    @property
    def whole(self) -> Frame:
        """All requests of the cell."""
        if len(self) == self.columns.rows:
            return self
        return Frame(
            self.columns,
            slo=self.slo,
            windows_s=self.windows_s,
            groups=self.all_groups,
            group_count=self.group_count,
            cost_per_hour=self.cost_per_hour,
            has_wan=self.has_wan,
        )

    def client(self, name: str) -> Floats:
        """A column of 'requests'."""
        self.accessed.add(f"requests.{name}")
        return self._chosen(self._number("requests", name))

    def router(self, name: str) -> Floats:
        """A column of 'handoffs'."""
        self.accessed.add(f"handoffs.{name}")
        return self._chosen(self._number("handoffs", name))

    def is_client(self, name: str, *texts: str) -> Mask:
        """Whether a text column of 'requests' is one of `texts`."""
        self.accessed.add(f"requests.{name}")
        return self._is("requests", name, texts)

    def is_router(self, name: str, *texts: str) -> Mask:
        """Whether a text column of 'handoffs' is one of `texts`."""
        self.accessed.add(f"handoffs.{name}")
        return self._is("handoffs", name, texts)

    def has_router(self, name: str) -> Mask:
        """Whether a text column of 'handoffs' is known."""
        self.accessed.add(f"handoffs.{name}")
        return self.labels("handoffs", name)[0] >= 0

    def labels(self, table: str, name: str) -> tuple[Codes, list[str]]:
        """A text column as codes into labels, -1 for null."""
        codes, labels = self.columns.category(table, name)
        return codes[self.rows], labels

    @property
    def ok(self) -> Mask:
        return self._is("requests", "status", ("ok",))

    @property
    def failed(self) -> Mask:
        """Failures of the system: 'error' and 'timeout', not what the plan cancelled or the end cut off."""
        return self._is("requests", "status", _FAILED)

    @property
    def groups(self) -> npt.NDArray[np.int32]:
        return self.all_groups[self.rows]

    @property
    def reps(self) -> npt.NDArray[np.int16]:
        return self.columns.rep[self.rows]

    @property
    def tokens(self) -> TokenScan:
        """Scan of the token offsets; pooled latencies are those of successful requests of this frame."""
        self.accessed.update(("requests.token_offsets_ns", "handoffs.switch_index"))
        with self._scanning:
            if self._scan is None:
                chosen = np.zeros(self.columns.rows, bool)
                chosen[self.rows] = self.ok
                switch = self.columns.number("handoffs", "switch_index")
                self._scan = scan_tokens(self.columns, switch, self.all_groups, self.group_count, chosen)
            return self._scan

    @property
    def handoff_gap_ns(self) -> Floats:
        """Wait before the first token of MD; NaN where there was no switch."""
        return self._chosen(self._scanned().handoff_gap_ns)

    @property
    def max_itl_ns(self) -> Floats:
        """Longest wait between two tokens; NaN for fewer than two."""
        return self._chosen(self._scanned().max_itl_ns)

    def _narrowed(
        self,
        rows: Rows,
        held: dict[tuple[str, str], Floats] | None = None,
    ) -> Frame:
        return Frame(
            self.columns,
            slo=self.slo,
            windows_s=self.windows_s,
            groups=self.all_groups,
            group_count=self.group_count,
            rows=rows,
            cost_per_hour=self.cost_per_hour,
            has_wan=self.has_wan,
            parent=self,
            held=held,
        )

    def _number(self, table: str, name: str) -> Floats:
        if self._held is None:
            return self.columns.number(table, name)
        key = (table, name)
        if key not in self._held:
            self._held[key] = self.columns.number(table, name)
        return self._held[key]

    def _scanned(self) -> TokenScan:
        """A scan over the whole cell: what it says per row holds for every choice of rows."""
        self.accessed.update(("requests.token_offsets_ns", "handoffs.switch_index"))
        return self.tokens if self._parent is None else self._parent._scanned()  # noqa: SLF001

    def _chosen(self, values: Floats) -> Floats:
        return values[self.rows]

    def _is(self, table: str, name: str, texts: tuple[str, ...]) -> Mask:
        return self.columns.is_one_of(table, name, texts)[self.rows]
