"""Time to open the connection, for requests that opened one. Not part of ttft.

connect_time = connect_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return f.client("connect_ns") / 1e6


METRIC = PerRequest("connect_time", "Connect time", "ms", Better.LOWER, ("requests.connect_ns",), observe)
