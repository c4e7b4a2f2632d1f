"""Formats that a run can be exported to."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from reports.errors import ReportError
from reports.run import Run

Export = Callable[[Run, str, int, Path], None]

EXPORTS: Final[dict[str, tuple[str, str, str]]] = {
    # name: (module, file name, what it is)
    "aiperf": ("reports.exports.aiperf", "profile_export.jsonl", "AIPerf's record of every request"),
    "vllm-bench": (
        "reports.exports.vllm_bench",
        "vllm_bench.json",
        "summary with the keys of vLLM's bench serve",
    ),
    "csv": (
        "reports.exports.requests_csv",
        "requests.csv",
        "every request, client and router columns side by side",
    ),
    "figures": ("reports.exports.figures_csv", "figures.csv", "every figure with its interval"),
    "otlp": ("reports.exports.otlp", "spans.jsonl", "OpenTelemetry spans of every request (OTLP JSON lines)"),
}


def export(run: Run, form: str, cell: str, rep: int, folder: Path) -> Path:
    """Write one repetition of one cell into `folder`; returns the file."""
    if form not in EXPORTS:
        raise ReportError(f"--format {form}: unknown; known: {', '.join(EXPORTS)}")
    module, name, _ = EXPORTS[form]
    if rep not in run.reps(cell):
        known = ", ".join(str(r) for r in run.reps(cell))
        raise ReportError(
            f"{run.path}: cell {cell!r} has no repetition {rep}; repetitions: {known or 'none'}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    write = cast("Export", importlib.import_module(module).write)
    write(run, cell, rep, path)
    return path
