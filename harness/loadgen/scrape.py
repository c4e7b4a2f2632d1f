"""Prometheus pages of the target, sampled in a thread of the recorder: never in the load generator itself."""

from __future__ import annotations

import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from reports.writer import TableWriter

_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 16 << 20


class Scraper(threading.Thread):
    """Samples each endpoint every `every_s` seconds on an absolute schedule; owns the table it writes."""

    def __init__(
        self, endpoints: tuple[str, ...], every_s: float, offset_ns: int, table: TableWriter
    ) -> None:
        super().__init__(name="scraper", daemon=True)
        self._endpoints: Final = endpoints
        self._every_s: Final = every_s
        self._offset_ns: Final = offset_ns
        self._table: Final = table
        self._ending: Final = threading.Event()
        self.scrapes = 0
        self.errors = 0
        self.last_error: str | None = None

    def run(self) -> None:
        due_s = time.monotonic()
        while True:
            for endpoint in self._endpoints:
                self._scrape(endpoint)
            due_s = max(due_s + self._every_s, time.monotonic())
            if self._ending.wait(due_s - time.monotonic()):
                return

    def close(self, *, finish: bool) -> None:
        """One last sample is not taken: the target may be gone already."""
        self._ending.set()
        self.join(_TIMEOUT_S * len(self._endpoints) + 1.0)
        self._table.close(finish=finish)

    def _scrape(self, endpoint: str) -> None:
        at_ns = time.monotonic_ns() + self._offset_ns
        try:
            with urllib.request.urlopen(endpoint, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the job's own URL
                page = answer.read(_MAX_BYTES).decode()
            columns = parse_page(page, endpoint, at_ns)
        except (OSError, ValueError) as error:
            self.errors += 1
            self.last_error = f"{endpoint}: {error}"
            return
        if columns["metric"]:
            self._table.write_columns(columns)
        self.scrapes += 1


def parse_page(page: str, endpoint: str, at_ns: int) -> dict[str, list[object]]:
    """Columns of `server_metrics`; raises ValueError when the page is not Prometheus text."""
    columns: dict[str, list[object]] = {"t_ns": [], "endpoint": [], "metric": [], "labels": [], "value": []}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            columns["t_ns"].append(at_ns)
            columns["endpoint"].append(endpoint)
            columns["metric"].append(sample.name)
            columns["labels"].append(msgspec.json.encode(sample.labels, order="sorted").decode())
            columns["value"].append(float(sample.value))
    return columns
