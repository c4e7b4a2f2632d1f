"""May the figures of a run be used? What the runner found, and what the records themselves say.

The runner judges each repetition by the experiment's own bounds when it ends; the bounds here are for
repetitions that never came to that, and for what can only be said of records.

A *reason* makes the run invalid: its figures answer another question than was asked. A *caution* is
printed with the figures. Every line names what was seen and the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from reports.columns import Columns
from reports.frame import Frame
from reports.run import Run
from reports.runinfo import RunState, Validity
from reports.stats.steady import trend, warmup_length

HIT_GAP: Final = 0.03
"""Achieved against expected prefix hit, token-weighted."""
LATE_MS: Final = 10.0
LATE_SHARE: Final = 0.1
"""P99 of the send lateness above both: 10 ms and a tenth of the median TTFT."""
UNFINISHED_SHARE: Final = 0.01
FAILED_SHARE: Final = 0.01
MERGED_SHARE: Final = 0.05
CLOCK_ERROR_MS: Final = 1.0
LOOP_LAG_MS: Final = 50.0
TREND_SHARE: Final = 0.25
TREND_P: Final = 0.01
WARMUP_SHARE: Final = 0.1


def judge(run: Run, opened: Mapping[str, Columns] | None = None) -> Validity:
    """Verdict on the whole run: every cell and repetition must be valid. `opened`: cells read already."""
    reasons = list(run.info.validity.reasons)
    cautions = list(run.info.validity.cautions)
    for cell in run.cells:
        found = judge_cell(run, cell.name, (opened or {}).get(cell.name))
        reasons += [_placed(cell.name, reason) for reason in found.reasons]
        cautions += [_placed(cell.name, caution) for caution in found.cautions]
    reasons[:0] = _whole(run)
    if sum(sorted(c.error_ns for c in run.info.clocks)[-2:]) > CLOCK_ERROR_MS * 1e6:
        cautions.append(f"clocks of two processes may differ by more than {CLOCK_ERROR_MS:g} ms")
    valid = not reasons and run.info.validity.valid
    if not valid and not reasons:
        reasons = ["the runner marked it invalid without a reason"]
    return Validity(valid, tuple(dict.fromkeys(reasons)), tuple(dict.fromkeys(cautions)))


def judge_cell(run: Run, cell: str, columns: Columns | None = None) -> Validity:
    """Verdict on one cell."""
    info = run.cell(cell)
    reasons = list(info.validity.reasons)
    cautions = list(info.validity.cautions)
    valid = info.validity.valid
    for rep in run.info.reps:
        if rep.cell == cell:
            reasons += [f"rep {rep.rep}: {reason}" for reason in rep.validity.reasons]
            cautions += [
                f"rep {rep.rep}: {caution}"
                for caution in rep.validity.cautions
                if caution not in run.info.validity.cautions
            ]
            valid = valid and rep.validity.valid
    columns = columns or Columns(run, cell)
    if columns.rows:
        frame = Frame(columns, slo=run.info.slo, windows_s={})
        told = {rep.rep for rep in run.info.reps if rep.cell == cell}
        untold = ~np.isin(frame.reps, list(told))
        if untold.any():
            reasons += _reasons(frame.chosen(untold))
        cautions += _cautions(frame) + _steadiness(frame) + _lag(run, cell)
    else:
        reasons.append("no measured requests")
    return Validity(valid and not reasons, tuple(reasons), tuple(cautions))


def _placed(cell: str, line: str) -> str:
    """`pdd rep 0: …` or `pdd: …`: as the runner says it, so that a line is not told twice."""
    return f"{cell} {line}" if line.startswith("rep ") else f"{cell}: {line}"


def _whole(run: Run) -> list[str]:
    if run.info.state is not RunState.COMPLETE:
        told = "still running, or killed" if run.info.state is RunState.RUNNING else run.info.state.value
        return [f"partial: the run is {told}; figures are of what was recorded"]
    unfinished = run.unfinished()
    if unfinished:
        names = ", ".join(f"{s.table}/{s.cell}/{s.rep}/{s.name}" for s in unfinished[:3])
        more = " …" if len(unfinished) > 3 else ""
        return [f"partial: {len(unfinished)} records were cut short ({names}{more})"]
    return []


def _reasons(frame: Frame) -> list[str]:
    found = []
    cached, expected = frame.client("cached_tokens"), frame.client("expected_cached_tokens")
    both = ~np.isnan(cached) & ~np.isnan(expected)
    prompt = frame.client("prompt_tokens")[both].sum()
    if both.any() and prompt:
        achieved, implied = cached[both].sum() / prompt, expected[both].sum() / prompt
        if abs(achieved - implied) > HIT_GAP:
            found.append(
                f"prefix hit {achieved:.1%} where the trace implies {implied:.1%} "
                f"(allowed {HIT_GAP * 100:g} points)"
            )
    unfinished = float(frame.is_client("status", "unfinished").mean())
    if unfinished > UNFINISHED_SHARE:
        found.append(f"{unfinished:.1%} of requests were cut off by the end (allowed {UNFINISHED_SHARE:.0%})")
    late = (frame.client("sent_ns") - frame.client("intended_ns")) / 1e6
    ttft = (frame.client("first_token_ns") - frame.client("sent_ns")) / 1e6
    if (~np.isnan(late)).any() and (~np.isnan(ttft)).any():
        p99, typical = float(np.nanquantile(late, 0.99)), float(np.nanmedian(ttft))
        allowed = max(LATE_MS, LATE_SHARE * typical)
        if p99 > allowed:
            found.append(f"requests were sent late: P99 {p99:.1f} ms (allowed {allowed:.1f} ms)")
    return found


def _cautions(frame: Frame) -> list[str]:
    found = []
    failed = float(frame.failed.sum() / max(int((frame.failed | frame.ok).sum()), 1))
    if failed > FAILED_SHARE:
        found.append(f"{failed:.1%} of requests failed: see the percentiles that count them as infinite")
    if frame.is_client("clock_source", "user").any():
        found.append("receive times by the process, not the kernel: late when the load generator was busy")
    merged, tokens = np.nansum(frame.client("merged_reads")), np.nansum(frame.client("output_tokens"))
    if tokens and merged / tokens > MERGED_SHARE:
        found.append(
            f"{merged / tokens:.1%} of token events merged in the socket: their ITL is off by one gap"
        )
    return found


def _steadiness(frame: Frame) -> list[str]:
    found = []
    sent = frame.client("sent_ns")
    ttft = (frame.client("first_token_ns") - sent) / 1e6
    for rep in frame.columns.reps:
        here = (frame.reps == rep) & frame.ok & ~np.isnan(ttft)
        ordered = ttft[here][np.argsort(sent[here])]
        if not len(ordered):
            continue
        moving = trend(ordered)
        if moving and moving.p < TREND_P and abs(moving.relative) > TREND_SHARE:
            found.append(
                f"rep {rep}: not steady: median TTFT changed by {moving.relative:+.0%} from the first to the "
                "last quarter"
            )
            continue
        warmup = warmup_length(np.log(np.maximum(ordered, 1e-3)))
        if warmup > WARMUP_SHARE * len(ordered):
            found.append(
                f"rep {rep}: the first {warmup} of {len(ordered)} requests look like warm-up (MSER-5)"
            )
    return found


def _lag(run: Run, cell: str) -> list[str]:
    lag = run.table("instrument_samples", cell, columns=["loop_lag_ns"])["loop_lag_ns"]
    worst = max((lag_ns for lag_ns in lag.to_pylist() if lag_ns is not None), default=0) / 1e6
    return [f"the load generator stalled for up to {worst:.0f} ms"] if worst > LOOP_LAG_MS else []
