"""vLLM engines for tests: each one is new, but the vLLM under it is taken up again.

To start vLLM takes longer than most tests, and its shutdown ends every other one of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.engines.vllm import installation
from adapters.engines.vllm.engine import VllmEngine
from harness.engine import Engine, EngineOptions

if TYPE_CHECKING:
    from adapters.engines.vllm.core import Core

_idle: dict[EngineOptions, list[Core]] = {}


def load_engine(name: str, options: EngineOptions) -> Engine:
    """Like `adapters.engines.load_engine`; `shutdown` gives the vLLM back, with nothing left in its cache."""
    assert name == "vllm"
    cores = _idle.setdefault(options, [])
    core = cores.pop() if cores else _start(options)
    core.shutdown = lambda: cores.append(core)
    return VllmEngine(core, options)


def _start(options: EngineOptions) -> Core:
    build = installation.check()
    installation.prepare(options.threads)
    from adapters.engines.vllm.core import Core  # noqa: PLC0415 - imports vLLM, which takes seconds

    return Core(options, build)
