"""Opens trace files: plain, gzip or zstandard, told by their first bytes, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

import zstandard

from workloads.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
MAX_LINE_BYTES: Final = 256 << 20
_CHUNK: Final = 1 << 20
_PACKED: Final = 1 << 12  # bytes unpacked at a time: what they hold is held in memory


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's decompressed bytes, without a byte order mark; damage becomes a TraceError."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            stream: IO[bytes] = raw
            if magic.startswith(_GZIP):
                stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
            elif magic == _ZSTD:
                stream = cast("IO[bytes]", _ZstdFrames(raw))
            buffered = io.BufferedReader(cast("io.RawIOBase", stream), _CHUNK)
            if buffered.peek(3).startswith(_BOM):
                buffered.read(3)
            yield cast("IO[bytes]", buffered)
    except FileNotFoundError as e:
        raise TraceError("no such file", file=path) from e
    except (gzip.BadGzipFile, zlib.error, EOFError, zstandard.ZstdError) as e:
        raise TraceError(f"damaged or cut-off compression: {e}", file=path) from e
    except OSError as e:
        raise TraceError(f"cannot be read: {e.strerror or e}", file=path) from e


class _ZstdFrames(io.RawIOBase):
    """The content of zstandard frames. A file that ends inside a frame is damaged: the library's own stream
    takes that for the end."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            packed = self._packed or self._raw.read(_PACKED)
            self._packed = b""
            if not packed:
                if self._frame is not None:
                    raise EOFError("the last frame is not whole")
                return 0
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = memoryview(self._frame.decompress(packed))
            if self._frame.eof:
                self._packed = self._frame.unused_data
                self._frame = None
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def read_all(path: Path) -> bytes:
    """The whole decompressed file, for formats whose unit is one document."""
    with opened(path) as stream:
        return stream.read()


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Non-blank lines with their number from 1, without line ends (LF or CRLF)."""
    with opened(path) as stream:
        number = 0
        while True:
            line = stream.readline(MAX_LINE_BYTES)
            if not line:
                return
            number += 1
            if len(line) == MAX_LINE_BYTES:
                raise TraceError(f"longer than {MAX_LINE_BYTES} bytes", file=path, line=number)
            line = line.strip()
            if line:
                yield number, line


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first decompressed bytes, to tell the format by."""
    with opened(path) as stream:
        return stream.read(size)


def digest(paths: list[Path]) -> str:
    """sha256 over the files' bytes as they lie on disk, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    total.update(chunk)
        except OSError as e:
            raise TraceError(f"cannot be read: {e.strerror or e}", file=path) from e
    return total.hexdigest()


def files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The file itself, or the directory's files with one of these suffixes (before .gz, .zst) by name."""
    if not path.is_dir():
        return [path]
    found = [p for p in sorted(path.iterdir()) if p.is_file() and _plain(p.name).endswith(suffixes)]
    if not found:
        raise TraceError(f"the directory holds no {' or '.join(suffixes)} file", file=path)
    return found


def _plain(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".zst")
