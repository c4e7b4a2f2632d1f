"""By how much the answer moves: B's premium, the line's rate, the hit rate."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.sim.planning.candidate import Candidate, Evaluation, Prices

_PREMIUMS: Final = (0.1, 0.2, 0.25, 0.3, 0.5)


class Move(msgspec.Struct, frozen=True):
    """The best candidate and its BCR when one thing differs, and the change against the answer."""

    what: str
    best: Candidate
    bcr: float
    change: float


def premium_moves(evaluations: list[Evaluation], prices: Prices) -> list[Move]:
    """The simulated candidates ranked anew at other prices of B: rates do not depend on prices."""
    base = max(e.bcr for e in evaluations)
    moves = []
    for premium in _PREMIUMS:
        at = prices.with_premium(premium)
        best = max(evaluations, key=lambda e: e.rate / e.candidate.cost(at))
        bcr = best.rate / best.candidate.cost(at)
        moves.append(Move(f"B {premium:.0%} dearer than A", best.candidate, bcr, bcr / base - 1))
    return moves


def line_moves(evaluations: list[Evaluation]) -> list[Move]:
    """The best candidate of each line rate among those that were simulated."""
    base = max(e.bcr for e in evaluations)
    moves = []
    for line in sorted({e.candidate.line_gbit for e in evaluations}):
        best = max((e for e in evaluations if e.candidate.line_gbit == line), key=lambda e: e.bcr)
        moves.append(Move(f"line of {line:g} Gbit/s", best.candidate, best.bcr, best.bcr / base - 1))
    return moves
