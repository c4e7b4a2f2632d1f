"""A run, or several, looked at: what terminal, Markdown, JSON and HTML all print."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reports.columns import Columns
from reports.comparability import check
from reports.comparison import Comparison, Figure, compare_sides, figures
from reports.errors import ReportError
from reports.run import Run
from reports.runinfo import Validity
from reports.sides import Side, Sides, open_columns, open_sides
from reports.validity import judge


@dataclass(frozen=True, slots=True)
class Analysis:
    """`figures[i]` belongs to `sides[i]`; `comparisons[i]` is side i + 1 against side 0."""

    runs: tuple[Run, ...]
    validity: tuple[Validity, ...]
    """One for each run."""
    sides: tuple[Side, ...]
    figures: tuple[tuple[Figure, ...], ...]
    comparisons: tuple[Comparison, ...]
    waived: tuple[str, ...]
    """Differences that forbid a comparison and were allowed."""

    @property
    def valid(self) -> bool:
        return all(verdict.valid for verdict in self.validity)

    @classmethod
    def of_run(cls, run: Run, *, seed: int = 0) -> Self:
        """All cells of a run that left requests, the first being the base."""
        chosen = [(run, cell.name) for cell in run.cells if run.reps(cell.name)]
        if not chosen:
            raise ReportError(f"{run.path}: no cell has left any request")
        return cls.of_cells(chosen, seed=seed)

    @classmethod
    def of_cells(
        cls, chosen: Sequence[tuple[Run, str]], *, allow: Collection[str] = (), seed: int = 0
    ) -> Self:
        """Cells of any runs, the first being the base. Raises ReportError for what does not compare.

        Cells of one run are an experiment's own contrast: they compare whatever they differ in.
        """
        base = chosen[0]
        waived: list[str] = []
        for other in chosen[1:]:
            if other[0].path != base[0].path:
                waived += check(base, other, allow)
        runs = tuple({run.path: run for run, _ in chosen}.values())
        columns = open_columns(chosen)
        with ThreadPoolExecutor(1) as pool:  # the verdicts need no pairing: they are found meanwhile
            verdicts = pool.map(lambda run: judge(run, _by_cell(columns, run)), runs)
            opened = open_sides(chosen, columns)
            comparisons = tuple(compare_sides(opened, seed=seed))
        return cls(
            runs,
            tuple(verdicts),
            opened.sides,
            _figures(opened, comparisons, seed),
            comparisons,
            tuple(dict.fromkeys(waived)),
        )


def _by_cell(columns: Sequence[Columns], run: Run) -> dict[str, Columns]:
    return {c.cell: c for c in columns if c.run.path == run.path}


def parse_cell(text: str) -> tuple[Run, str | None]:
    """`RUN` or `RUN:cell`."""
    path, _, cell = text.partition(":") if not Path(text).exists() else (text, "", "")
    run = Run.open(Path(path))
    if cell:
        run.cell(cell)
    return run, cell or None


def match_cells(texts: Sequence[str]) -> list[list[tuple[Run, str]]]:
    """What to compare with what: groups of cells, each with its base first.

    Several runs: each cell of the first against the cell of the same name in the others. With a cell
    named in any of them: those cells alone.
    """
    parsed = [parse_cell(text) for text in texts]
    first, _ = parsed[0]
    if any(named is not None for _, named in parsed) or all(len(run.cells) == 1 for run, _ in parsed):
        for text, (run, named) in zip(texts, parsed, strict=True):
            if named is None and len(run.cells) > 1:
                names = ", ".join(f"{text}:{c.name}" for c in run.cells)
                raise ReportError(f"{text}: say which cell: {names}")
        return [[(run, named or run.cells[0].name) for run, named in parsed]]
    groups = []
    for known in first.cells:
        same = [(run, known.name) for run, _ in parsed if any(c.name == known.name for c in run.cells)]
        if len(same) == len(parsed) and all(run.reps(known.name) for run, _ in same):
            groups.append(same)
    if not groups:
        cells = "; ".join(f"{run.path}: {', '.join(c.name for c in run.cells)}" for run, _ in parsed)
        raise ReportError(f"no cell is in all runs ({cells}); name them: RUN:cell RUN:cell")
    return groups


def _figures(opened: Sides, comparisons: tuple[Comparison, ...], seed: int) -> tuple[tuple[Figure, ...], ...]:
    if not comparisons:
        return tuple(tuple(side) for side in figures(opened, seed=seed))
    base = tuple(row.base for row in comparisons[0].rows)
    return (base, *(tuple(row.other for row in comparison.rows) for comparison in comparisons))
