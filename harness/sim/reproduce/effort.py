"""How much is simulated, and on how many cores."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Effort(msgspec.Struct, frozen=True):
    """Figures are means over `seeds` repetitions of `requests` requests each."""

    seeds: int = 3
    requests: int = 8000
    jobs: int = 1

    def map(self, function: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
        """`function` of every item, on `jobs` processes; in order."""
        if self.jobs <= 1 or len(items) <= 1:
            return [function(item) for item in items]
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(min(self.jobs, len(items)), mp_context=context) as pool:
            return list(pool.map(function, items))


QUICK = Effort(seeds=1, requests=4000)
