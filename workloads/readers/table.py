"""CSV files read strictly: a header with the columns wanted, rows of its length, cells of their type."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from workloads.errors import TraceError
from workloads.source import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Row:
    """One row; a getter whose cell is not what it should be raises with file, line, column and value."""

    __slots__ = ("_cells", "_columns", "file", "line")

    def __init__(self, file: str, line: int, columns: dict[str, int], cells: Sequence[str]) -> None:
        self.file = file
        self.line = line
        self._columns = columns
        self._cells = cells

    def has(self, column: str) -> bool:
        """Whether the column is there and the cell is not empty."""
        at = self._columns.get(column)
        return at is not None and bool(self._cells[at])

    def text(self, column: str) -> str:
        """The cell's text."""
        return self._cells[self._columns[column]]

    def integer(self, column: str) -> int:
        """A whole number in decimal digits."""
        text = self.text(column).strip()
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 20:
            return int(text)
        raise self.wrong(column, "must be a whole number")

    def number(self, column: str) -> float:
        """A decimal number."""
        text = self.text(column).strip()
        if "_" not in text:
            try:
                return float(text)
            except ValueError:
                pass
        raise self.wrong(column, "must be a number")

    def wrong(self, column: str, message: str) -> TraceError:
        """The error to raise for this cell."""
        return TraceError(message, file=self.file, line=self.line, field=column, value=self.text(column))


def rows(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    """Rows of a CSV file with a header line; blank lines are skipped."""
    with opened(path) as stream:
        reader = csv.reader(io.TextIOWrapper(stream, "utf-8", newline=""), strict=True)
        try:
            yield from _rows(reader, str(path), needed)
        except csv.Error as e:
            raise TraceError(f"not CSV: {e}", file=path, line=reader.line_num) from e
        except UnicodeDecodeError as e:
            raise TraceError(f"not UTF-8: {e.reason}", file=path, line=reader.line_num + 1) from e


def _rows(reader: Iterator[list[str]], file: str, needed: Sequence[str]) -> Iterator[Row]:
    header = next(reader, None)
    if header is None:
        raise TraceError("is empty; a header line was expected", file=file)
    names = [name.strip() for name in header]
    columns = {name: at for at, name in enumerate(names)}
    if len(columns) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TraceError("this column stands in the header twice", file=file, line=1, value=twice)
    missing = [name for name in needed if name not in columns]
    if missing:
        raise TraceError(f"lacks the columns {', '.join(missing)}", file=file, line=1)
    for cells in reader:
        line = reader.line_num  # type: ignore[attr-defined]
        if not cells:
            continue
        if len(cells) != len(names):
            raise TraceError(
                f"has {len(cells)} cells where the header has {len(names)}", file=file, line=line
            )
        yield Row(file, line, columns, cells)
