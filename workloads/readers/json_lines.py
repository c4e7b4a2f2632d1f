"""JSON lines decoded strictly, and JSON arrays one element at a time."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

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

RowType = TypeVar("RowType", bound=msgspec.Struct)


class TwiceError(Exception):
    """An object holds a key twice: which of the two is meant?"""


def check_keys(text: bytes, place: Place) -> None:
    """Refuse a JSON text in which an object holds a key twice."""
    try:
        json.loads(text, object_pairs_hook=_table)
    except TwiceError as e:
        raise _twice(e, place) from e


def _twice(e: TwiceError, place: Place) -> TraceError:
    return TraceError("stands in one object twice", file=place.file, line=place.line, field=str(e))


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def _fields(decoder: msgspec.json.Decoder[RowType]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(cast("type[msgspec.Struct]", decoder.type))


def rows(source: Path, decoder: msgspec.json.Decoder[RowType], what: str) -> Iterator[tuple[RowType, Place]]:
    """Decoded lines of a file with their place; `what` names a row in the error."""
    file = str(source)
    keys = [f'"{field.encode_name}"'.encode() for field in _fields(decoder)]
    for number, line in lines(source):
        place = Place(file, number)
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise TraceError(f"not {what}: {e}", file=source, line=number) from e
        if any(line.count(key) > 1 for key in keys):  # cheap, and rarely true
            check_keys(line, place)
        yield row, place


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
        self._decoder = json.JSONDecoder(object_pairs_hook=_table)

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
            except TwiceError as e:
                raise TraceError(
                    "stands in one object twice", file=self._source, line=number, field=str(e)
                ) from e
            except (ValueError, RecursionError) as e:
                if not isinstance(e, json.JSONDecodeError) or not self._more():
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
