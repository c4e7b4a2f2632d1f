"""The plan on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from harness.sim.planning.candidate import Evaluation
from harness.sim.planning.plan import Plan


def print_evaluation(console: Console, e: Evaluation) -> None:
    console.print(
        f"  {e.candidate}: {e.rate:.2f} req/s, cost {e.cost:.2f}, BCR {e.bcr:.4f}",
        highlight=False,
        soft_wrap=True,
    )


def print_plan(console: Console, plan: Plan) -> None:
    """The front, the answer against the baseline, and what moves it."""
    console.print("\nPareto front, cost against requests/s within the SLO:", highlight=False)
    _table(
        console,
        [(str(e.candidate), f"{e.rate:.2f} req/s", f"{e.cost:.2f}", f"{e.bcr:.4f}") for e in plan.front],
    )
    best = plan.best
    console.print(f"\nbest: {best.candidate}: BCR {best.bcr:.4f}", highlight=False, soft_wrap=True)
    if plan.baseline is not None:
        base = plan.baseline
        console.print(
            f"against {base.candidate}: BCR {base.bcr:.4f}, {best.bcr / base.bcr - 1:+.1%}",
            highlight=False,
            soft_wrap=True,
        )
    console.print("\nwhat moves the answer:", highlight=False)
    _table(console, [(m.what, str(m.best), f"{m.bcr:.4f}", f"{m.change:+.1%}") for m in plan.moves])


def _table(console: Console, rows: list[tuple[str, ...]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
