"""What must be equal before two results may be compared, and why.

Each rule can be waived by its name; the waiver is then printed with the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from reports.errors import ReportError
from reports.run import Run
from reports.runinfo import CellInfo

Rule = Callable[[Run, CellInfo], object]


def _trace(run: Run, _: CellInfo) -> object:
    return run.info.trace.digest if run.info.trace else None


def _token_scale(run: Run, _: CellInfo) -> object:
    return run.info.token_scale


def _time_scale(run: Run, _: CellInfo) -> object:
    return run.info.time_scale


def _load_driver(run: Run, _: CellInfo) -> object:
    return run.info.load_driver


def _link_driver(_: Run, cell: CellInfo) -> object:
    return cell.link.driver if cell.link else None


def _engine(run: Run, cell: CellInfo) -> object:
    engines = sorted({f"{e.engine}{' (emulated)' if e.emulated else ''}" for e in cell.engines})
    return ", ".join(engines) or ("simulated" if run.info.simulated else None)


def _model(_: Run, cell: CellInfo) -> object:
    return ", ".join(sorted({e.model_digest or e.model for e in cell.engines})) or None


def _host(run: Run, _: CellInfo) -> object:
    # Virtual time does not depend on the machine.
    return "any" if run.info.simulated else run.info.host.host_class


RULES: Final[dict[str, tuple[str, Rule]]] = {
    "trace": ("replayed another trace", _trace),
    "token-scale": ("scaled the trace's tokens differently", _token_scale),
    "time-scale": ("scaled the trace's gaps differently", _time_scale),
    "load-driver": ("sent the load by another driver", _load_driver),
    "link-driver": ("made the WAN by another driver", _link_driver),
    "engine": ("ran another engine", _engine),
    "model": ("served another model", _model),
    "host": ("ran on another class of machine", _host),
}


def check(base: tuple[Run, str], other: tuple[Run, str], allow: Collection[str] = ()) -> list[str]:
    """Refuse what does not compare; returns one line for each difference that was allowed.

    `allow`: names of rules not to insist on, or 'all'.
    """
    unknown = set(allow) - RULES.keys() - {"all"}
    if unknown:
        raise ReportError(f"--allow {min(unknown)}: unknown; known: {', '.join(RULES)}, all")
    base_cell, other_cell = base[0].cell(base[1]), other[0].cell(other[1])
    waived: list[tuple[str, str]] = []
    refused: list[tuple[str, str]] = []
    for name, (what, rule) in RULES.items():
        a, b = rule(base[0], base_cell), rule(other[0], other_cell)
        if a == b or a is None or b is None:
            continue
        line = f"{other[0].path.name}:{other[1]} {what} than {base[0].path.name}:{base[1]} ({b} against {a})"
        (waived if name in allow or "all" in allow else refused).append((name, line))
    if refused:
        names = ",".join(name for name, _ in refused)
        raise ReportError(
            f"not comparable: {'; '.join(line for _, line in refused)}; --allow {names} compares anyway"
        )
    return [line for _, line in waived]
