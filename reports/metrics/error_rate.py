"""Share of requests that failed: 'error' and 'timeout'. Cancelled by plan or cut by the end do not count.

error_rate = count(status in (error, timeout)) / count(status in (ok, error, timeout))
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    failed = f.is_client("status", "error", "timeout")
    counted = failed | f.is_client("status", "ok")
    return failed.astype(float), counted.astype(float)


METRIC = Share("error_rate", "Failed requests", "1", Better.LOWER, ("requests.status",), terms, headline=True)
