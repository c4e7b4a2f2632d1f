"""The analysis as JSON. Numbers are in the metric's unit, shares and changes as fractions, null undefined."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from reports.analysis import Analysis
from reports.answer import answer
from reports.comparison import Comparison, Effect, Figure, Row
from reports.stats.change import Estimate

FORMAT: Final = 1


def document(analysis: Analysis) -> dict[str, Any]:
    """Everything that the tables show, for scripts; `format` grows when a meaning changes."""
    told = answer(analysis)
    return {
        "format": FORMAT,
        "answer": None
        if told is None
        else {
            "figure": told.key,
            "winner": told.winner.cell.name if told.winner else None,
            "sure": told.sure,
            "text": " ".join([told.headline, *told.details]),
        },
        "runs": [
            {
                "path": str(run.path),
                "name": run.info.name,
                "state": run.info.state.value,
                "partial": run.partial,
                "valid": verdict.valid,
                "reasons": list(verdict.reasons),
                "cautions": list(verdict.cautions),
            }
            for run, verdict in zip(analysis.runs, analysis.validity, strict=True)
        ],
        "cells": [
            {
                "run": str(side.run.path),
                "cell": side.cell.name,
                "label": side.label,
                "mode": side.cell.mode,
                "requests": len(side.frame),
                "reps": len(side.frame.columns.reps),
                "figures": {f.key: _figure(f) for f in found if f.estimate.value is not None},
            }
            for side, found in zip(analysis.sides, analysis.figures, strict=True)
        ],
        "comparisons": [_comparison(c) for c in analysis.comparisons],
        "waived": list(analysis.waived),
    }


def encode(analysis: Analysis) -> bytes:
    """The document as indented JSON; infinities are the strings 'inf' and '-inf'."""
    return msgspec.json.format(msgspec.json.encode(_finite(document(analysis))), indent=2) + b"\n"


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "unit": figure.metric.unit,
        "better": figure.metric.better.value,
        "headline": figure.headline,
        "few_beyond": figure.few_beyond,
        **_estimate(figure.estimate),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.size,
        "reps": estimate.reps,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    same, both = comparison.agreement or (None, None)
    return {
        "base": {"run": str(comparison.base.run.path), "cell": comparison.base.cell.name},
        "other": {"run": str(comparison.other.run.path), "cell": comparison.other.cell.name},
        "paired": comparison.paired,
        "cautions": list(comparison.cautions),
        "equal_outputs": same,
        "compared_outputs": both,
        "changes": {row.base.key: _change(row) for row in comparison.rows if row.change is not None},
        "effects": {effect.metric: _effect(effect) for effect in comparison.effects},
    }


def _change(row: Row) -> dict[str, Any]:
    assert row.change is not None
    return {
        "absolute": row.change.absolute,
        "absolute_low": row.change.low,
        "absolute_high": row.change.high,
        "relative": row.change.relative,
        "relative_low": row.change.relative_low,
        "relative_high": row.change.relative_high,
        "p": row.change.p,
        "adjusted_p": row.adjusted_p,
        "detectable": row.change.detectable,
        "verdict": row.verdict.value,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "cliffs_delta": effect.cliffs_delta,
        "p": effect.p,
        "adjusted_p": effect.adjusted_p,
        "paired_ratio": None if effect.paired_ratio is None else _estimate(effect.paired_ratio),
    }


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(entry) for key, entry in value.items()}
        case list():
            return [_finite(entry) for entry in value]
        case float() if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        case _:
            return value
