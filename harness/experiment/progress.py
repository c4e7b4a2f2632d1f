"""What the person at the terminal sees while a run goes on."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from harness.loadgen.progress import Progress as LoadProgress
from harness.loadgen.progress import progress_text


class RunProgress:
    """One line a cell: what it does now, how far it is. Quiet lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("", total=None, state="")
        self._title = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, title: str) -> None:
        """A cell begins."""
        self._title = title
        self._bars.reset(self._task, description=title, total=None, state="starting")
        if not self._console.is_terminal:
            self._console.print(f"{title}: starting", highlight=False)

    def step(self, state: str) -> None:
        self._bars.update(self._task, state=state)

    def load(self, progress: LoadProgress) -> None:
        """The load generator reports."""
        self._bars.update(
            self._task,
            total=progress.planned_requests,
            completed=progress.done,
            state=progress_text(progress),
        )

    def done(self, line: str) -> None:
        """A cell has ended; the line stays."""
        self._console.print(f"{self._title}: {line}", highlight=False)

    def warn(self, line: str) -> None:
        self._console.print(f"{self._title}: {line}", style="yellow", highlight=False)
