"""Every metric by name, in the order people read them; the files are imported when asked for."""

from __future__ import annotations

import importlib
from typing import Final, cast

from reports.errors import ReportError
from reports.metric import AnyMetric

METRICS: Final[tuple[str, ...]] = (
    "ttft",
    "ttft_intended",
    "ttfo",
    "tpot",
    "itl",
    "max_itl",
    "e2e_latency",
    "handoff_gap",
    "handoff_latency",
    "handoff_extend",
    "handoff_resume",
    "handoff_copy",
    "handoff_bytes",
    "queue_time",
    "prefill_time",
    "main_transfer_time",
    "relay_transfer_time",
    "transfer_estimate_ratio",
    "relay_tokens",
    "relay_token_share",
    "relayed_share",
    "prefix_hit",
    "prefix_hit_per_request",
    "expected_prefix_hit",
    "prefill_hit",
    "main_hit",
    "cache_gap_tokens",
    "wan_kv_bytes",
    "saved_kv_bytes",
    "wan_bytes",
    "wan_utilisation",
    "request_throughput",
    "output_token_throughput",
    "prompt_token_throughput",
    "slo_attainment",
    "request_goodput",
    "bcr",
    "error_rate",
    "recovery_time",
    "send_lateness",
    "connect_time",
)


def metric(name: str) -> AnyMetric:
    """The metric of this name."""
    if name not in METRICS:
        raise ReportError(f"no metric {name!r}; metrics: {', '.join(METRICS)}")
    return cast("AnyMetric", importlib.import_module(f"reports.metrics.{name}").METRIC)


def formula(name: str) -> str:
    """The docstring that defines the metric."""
    metric(name)
    return (importlib.import_module(f"reports.metrics.{name}").__doc__ or "").strip()
