"""JSON lines decoded strictly, and JSON arrays one element at a time."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from workloads.builder import Place
from workloads.errors import TraceError
from workloads.source import lines, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK: Final = 1 << 18
_MAX_ELEMENT: Final = 256 << 20
_SPACE: Final = " \t\r\n"

RowType = TypeVar("RowType")


def rows(source: Path, decoder: msgspec.json.Decoder[RowType], what: str) -> Iterator[tuple[RowType, Place]]:
    """Decoded lines of a file with their place; `what` names a row in the error."""
    file = str(source)
    for number, line in lines(source):
        try:
            yield decoder.decode(line), Place(file, number)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise TraceError(f"not {what}: {e}", file=source, line=number) from e


def elements(source: Path) -> Iterator[tuple[Any, Place]]:
    """Elements of a JSON array, or the documents of a JSON-lines file, in bounded memory.

    An element's place is its number from 1.
    """
    with opened(source) as stream:
        text = _Window(codecs.getreader("utf-8")(stream), source)
        array = text.peek() == "["
        if array:
            text.skip()
        number = 0
        while (first := text.peek()) and not (array and first == "]"):
            if first == "," and number and array:
                text.skip()
            number += 1
            yield text.element(number), Place(str(source), number)
        if array:
            if not first:
                raise TraceError("the array is not closed: the file is cut off", file=source)
            text.skip()
            if text.peek():
                raise TraceError("there is something after the array", file=source)


class _Window:
    """The part of the text being decoded."""

    def __init__(self, stream: codecs.StreamReader, source: Path) -> None:
        self._stream = stream
        self._source = source
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is not white space; '' at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def skip(self) -> None:
        self._at += 1

    def element(self, number: int) -> Any:
        """The JSON value that begins here."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as e:
                if isinstance(e, RecursionError) or not self._more():
                    raise TraceError(f"not JSON: {e}", file=self._source, line=number) from e
                continue
            if end == len(self._text) and self._more():
                continue  # a number or a word might go on
            self._at = end
            return value

    def _more(self) -> bool:
        if len(self._text) - self._at > _MAX_ELEMENT:
            raise TraceError(f"an element is longer than {_MAX_ELEMENT} characters", file=self._source)
        try:
            chunk = self._stream.read(max(_CHUNK, len(self._text) - self._at))
        except UnicodeDecodeError as e:
            raise TraceError(f"not UTF-8: {e.reason}", file=self._source) from e
        if not chunk:
            return False
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return True
