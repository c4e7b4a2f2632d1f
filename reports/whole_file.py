"""A small JSON document that stands on disk whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from reports.errors import RecordingError


def write_whole(document: msgspec.Struct, folder: Path, name: str) -> Path:
    """Write under a temporary name, then rename. RecordingError when the disk does not take it."""
    path = folder / name
    temporary = folder / f".{name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RecordingError(f"{path}: cannot write ({error.strerror})") from error
    return path
