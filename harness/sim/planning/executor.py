"""Where evaluations run: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class ExecutorError(RuntimeError):
    """The executor asked for cannot be had; one line."""


class Executor(Protocol):
    def map(self, function: Callable[[_In], _Out], items: Sequence[_In]) -> Iterator[tuple[int, _Out]]:
        """(index, result) of every item, as they come."""
        ...


class Processes:
    """`jobs` processes of this machine."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def map(self, function: Callable[[_In], _Out], items: Sequence[_In]) -> Iterator[tuple[int, _Out]]:
        if self._jobs <= 1 or len(items) <= 1:
            yield from ((i, function(item)) for i, item in enumerate(items))
            return
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(min(self._jobs, len(items)), mp_context=context) as pool:
            futures = {pool.submit(function, item): i for i, item in enumerate(items)}
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()


def _apply(function: Callable[[_In], _Out], item: _In) -> _Out:
    return function(item)


class RayCluster:
    """A Ray cluster: the one that RAY_ADDRESS names, else one of this machine."""

    def __init__(self) -> None:
        try:
            import ray  # noqa: PLC0415 - optional, and only when asked for
        except ImportError:
            raise ExecutorError(
                "--executor ray: ray is not installed; pip install ray, or use processes"
            ) from None
        self._ray = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)

    def map(self, function: Callable[[_In], _Out], items: Sequence[_In]) -> Iterator[tuple[int, _Out]]:
        remote = self._ray.remote(num_cpus=1)(_apply)  # it takes functions, not partials
        shared = self._ray.put(function)
        pending = {remote.remote(shared, item): i for i, item in enumerate(items)}
        while pending:
            done, _ = self._ray.wait(list(pending), num_returns=1)
            yield pending.pop(done[0]), self._ray.get(done[0])
