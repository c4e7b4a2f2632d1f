"""A summary with the keys that `vllm bench serve --save-result` writes, for scripts that read those.

Percentiles here are ours (nearest rank, exact), `median_*` is the P50. E2EL and TPOT follow reports.metrics.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from reports.columns import Columns
from reports.frame import Frame
from reports.metric import PerRequest, PerToken, Share
from reports.metric_table import metric
from reports.run import Run
from reports.sides import windows_s
from reports.stats.sample import Sample

_LATENCIES: Final = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e_latency"}


def write(run: Run, cell: str, rep: int, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summary(run, cell, rep)), indent=2) + b"\n")


def summary(run: Run, cell: str, rep: int) -> dict[str, Any]:
    """The summary of one repetition."""
    columns = Columns(run, cell)
    windows = windows_s(columns)
    whole = Frame(columns, slo=run.info.slo, windows_s={rep: windows[rep]})
    frame = whole.chosen(whole.reps == rep)
    engine = next(iter(run.cell(cell).engines), None)
    inputs = float(frame.client("prompt_tokens")[frame.ok].sum())
    outputs = float(np.nansum(frame.client("output_tokens")[frame.ok]))
    duration = windows[rep]
    good = metric("slo_attainment")
    assert isinstance(good, Share)
    attained = good.terms(frame)
    found: dict[str, Any] = {
        "date": datetime.fromtimestamp(run.info.started_ns / 1e9, UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai",
        "backend": engine.engine if engine else "unknown",
        "label": f"{run.info.name}/{cell}/{rep}",
        "model_id": engine.model if engine else "unknown",
        "tokenizer_id": engine.model if engine else "unknown",
        "num_prompts": len(frame),
        "request_rate": "inf",
        "burstiness": None,
        "max_concurrency": None,
        "duration": duration,
        "completed": int(frame.ok.sum()),
        "failed": int(frame.failed.sum()),
        "total_input_tokens": int(inputs),
        "total_output_tokens": int(outputs),
        "request_throughput": float(frame.ok.sum()) / duration,
        "request_goodput": None if attained is None else float(np.sum(attained[0])) / duration,
        "output_throughput": outputs / duration,
        "total_token_throughput": (inputs + outputs) / duration,
    }
    for theirs, ours in _LATENCIES.items():
        found |= _statistics(theirs, _sample(frame, ours))
    return found


def _sample(frame: Frame, name: str) -> Sample:
    known = metric(name)
    if isinstance(known, PerToken):
        return known.pool(frame)
    assert isinstance(known, PerRequest)
    return known.sample(frame)


def _statistics(name: str, sample: Sample) -> dict[str, float]:
    if not sample.size:
        return {}
    mean = float(np.average(sample.values, weights=sample.counts))
    spread = float(np.sqrt(np.average((sample.values - mean) ** 2, weights=sample.counts)))
    found = {f"mean_{name}_ms": mean, f"median_{name}_ms": sample.quantile(0.5), f"std_{name}_ms": spread}
    found |= {f"p{round(100 * q)}_{name}_ms": sample.quantile(q) for q in (0.5, 0.9, 0.95, 0.99)}
    return {key: value for key, value in found.items() if value is not None}
