"""Whether the figures of one repetition may be used, and if not, why: one line a reason."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from adapters.links import judge_link
from harness.experiment.cell_run import CellRecord
from harness.experiment.recomputation import recomputed
from reports.run import Run
from reports.runinfo import Validity

_ERROR_SHARE_BOUND = 0.01
_UNFINISHED_SHARE_BOUND = 0.05


def judge(record: CellRecord, run: Run) -> Validity:
    """Instrument, prefix hits, recomputation, failures and workers of one cell and repetition."""
    reasons: list[str] = []
    cautions: list[str] = list(record.warnings)
    if record.finished is not None:
        reasons += [f"instrument: {reason}" for reason in record.finished.reasons]
        if record.finished.interrupted:
            reasons.append("interrupted: the load was ended early")
    reasons += _prefix_hits(record, run)
    reasons += recomputed(run, record.cell.name, record.rep)
    if record.profiles:
        reasons += judge_link(record.profiles, record.link_samples)
    reasons += record.died
    if record.fault_error is not None:
        reasons.append(f"fault: {record.fault_error}")
    failures = _failures(record, run)
    # Under injected faults, failures are what is measured.
    (cautions if record.cell.faults else reasons).extend(failures)
    if record.plan is not None:
        if record.plan.dropped_sessions:
            cautions.append(
                f"{record.plan.dropped_sessions} sessions ({record.plan.dropped_turns} turns) of the trace "
                f"exceed the context of {record.plan.max_context_tokens} tokens and were left out"
            )
        cautions += record.plan.warnings
    if any(info.recomputes for info in record.engines.values()):
        cautions.append(
            "degraded: the workers hold no KV; what would be transferred is recomputed by the receiver, and "
            "prefix hits, KV bytes and transfer times are not known"
        )
    if record.link is not None and record.link.description.modelled:
        cautions.append("the WAN is a user-space relay: TCP over it is modelled, not real")
    return Validity(not reasons, tuple(reasons), tuple(cautions))


def _prefix_hits(record: CellRecord, run: Run) -> list[str]:
    """The engine's own prefix hits against what the trace and the size of the cache imply."""
    columns = ["phase", "status", "prompt_tokens", "cached_tokens", "expected_cached_tokens"]
    rows = run.table("requests", record.cell.name, record.rep, columns)
    rows = rows.filter(
        (pc.field("phase") == "measure")
        & (pc.field("status") == "ok")
        & pc.field("cached_tokens").is_valid()
        & pc.field("expected_cached_tokens").is_valid()
    )
    prompt = pc.sum(rows["prompt_tokens"]).as_py()
    if not prompt:
        return []
    achieved = 100 * pc.sum(rows["cached_tokens"]).as_py() / prompt
    expected = 100 * pc.sum(rows["expected_cached_tokens"]).as_py() / prompt
    bound = record.cell.workload.hit_tolerance_points
    if abs(achieved - expected) <= bound:
        return []
    size = record.plan.cache_tokens if record.plan else None
    cache = "" if size is None else f" in a cache of {size:,} tokens"
    line = f"prefix hit: {achieved:.1f} % achieved, {expected:.1f} % implied by the trace{cache}"
    return [f"{line}; they may differ by {bound:g} points"]


def _failures(record: CellRecord, run: Run) -> list[str]:
    table = run.table("requests", record.cell.name, record.rep, ["status"])
    counts = Counter(table["status"].cast(pa.string()).to_pylist())
    total = counts.total()
    if total == 0:
        return ["no request was recorded in the run's folder"]
    reasons = []
    failed = counts["error"] + counts["timeout"]
    if failed > _ERROR_SHARE_BOUND * total:
        reasons.append(f"failures: {failed} of {total} requests failed; at most {_ERROR_SHARE_BOUND:.0%} may")
    if counts["unfinished"] > _UNFINISHED_SHARE_BOUND * total:
        # The slowest are missing: what is left looks faster than it was.
        reasons.append(
            f"unfinished: {counts['unfinished']} of {total} requests had no whole answer in the end; "
            f"at most {_UNFINISHED_SHARE_BOUND:.0%} may: give load.limits.drain_s more time, or send less"
        )
    return reasons
