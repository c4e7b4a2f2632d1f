"""Which model directory a name means: generated, or a path; each with its sha256."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from adapters.engines.vllm import tiny
from harness.engine import EngineError

_KNOWN = "'tiny', 'tiny:kv=BYTES,seed=N', or the path of a directory with config.json and .safetensors files"


@dataclass(frozen=True, slots=True)
class Model:
    """A directory that is there; `dtype` is what it computes in ('auto': as its config says)."""

    name: str
    path: Path
    sha256: str
    dtype: str
    first_normal_id: int


def resolve(name: str, sha256: str | None) -> Model:
    """Make sure that the model is there. Raises EngineError for an unknown name, a missing file, or one
    whose hash (of its weight files, in order of their names) is not `sha256`."""
    kind, _, arguments = name.partition(":")
    if kind == "tiny":
        return _checked(name, _tiny(name, arguments), sha256, "float32")
    path = Path(name).expanduser()
    if not path.is_dir():
        raise EngineError(f"model {name!r} is not known to engine 'vllm'; known: {_KNOWN}")
    if not (path / "config.json").is_file():
        raise EngineError(f"model directory {path} has no config.json; known: {_KNOWN}")
    return _checked(path.name, path, sha256, "auto")


def _checked(name: str, path: Path, sha256: str | None, dtype: str) -> Model:
    digest = hashlib.sha256()
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise EngineError(f"model directory {path} has no .safetensors file")
    for file in (path / "config.json", *files):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    found = digest.hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise EngineError(f"model {path} has sha256 {found}, expected {sha256}; replace its files")
    return Model(name, path, found, dtype, _first_normal_id(path))


def _first_normal_id(path: Path) -> int:
    """One beyond the special ids at the low end; a vocabulary with its special ids on top begins at 0."""
    config = json.loads((path / "config.json").read_text())
    special = []
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        special += value if isinstance(value, list) else [value]
    low = [i for i in special if isinstance(i, int) and i < config["vocab_size"] // 2]
    return max(low, default=-1) + 1


def _cache_directory() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "pddbench" / "models"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _tiny(name: str, arguments: str) -> Path:
    values = {"kv": tiny.KV_BYTES, "seed": 0}
    for argument in arguments.split(",") if arguments else []:
        match = re.fullmatch(r"(kv|seed)=(\d+)", argument)
        if match is None:
            raise EngineError(f"model {name!r}: {argument!r} is not understood; known: kv=BYTES, seed=N")
        values[match[1]] = int(match[2])
    shape = tiny.shape_for(values["kv"], values["seed"])
    path = _cache_directory() / f"vllm-tiny-{shape.layers}x{shape.head_width}-seed{shape.seed}"
    if not (path / "config.json").is_file():
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            fresh = Path(directory) / path.name
            fresh.mkdir()
            tiny.write(fresh, shape)
            try:
                fresh.rename(path)
            except OSError:  # another worker was faster
                if not (path / "config.json").is_file():
                    raise
    return path
