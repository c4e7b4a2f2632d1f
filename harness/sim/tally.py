"""An observer that keeps figures in memory: for calibration, planning and benchmarks, without any table."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.policy import actions as act
from harness.policy import events as ev
from harness.sim.request import SimRequest
from harness.sim.session import Session, Turn
from harness.sim.wan import WanPool
from harness.sim.worker import SimWorker

_COLUMNS: Final = (
    "arrived_s",
    "turn",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "prefill_s",
    "transfer_s",
    "stall_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "relay_tokens",
    "main_kv_bytes",
)
"""Null is NaN. `prefill_s` ends when P holds the KV; `transfer_s` is MD's copy, from its start."""


class Tally:
    """Columns of the measured requests that succeeded, and counts of the rest."""

    wants_decisions = False

    def __init__(self) -> None:
        self._columns: Final = {name: array("d") for name in _COLUMNS}
        self._pipelines: list[str] = []
        self.failed = 0
        self.abandoned = 0
        self.warmup = 0

    def __len__(self) -> int:
        return len(self._pipelines)

    def column(self, name: str) -> NDArray[np.float64]:
        """One of the columns listed above: float64[requests]."""
        return np.frombuffer(self._columns[name], np.float64) if len(self) else np.zeros(0)

    @property
    def pipelines(self) -> NDArray[np.str_]:
        return np.array(self._pipelines, dtype=np.str_)

    def percentile(self, name: str, q: float) -> float:
        """Percentile `q` (0 to 100) of a column over the requests that have it; NaN when none has."""
        values = self.column(name)
        values = values[~np.isnan(values)]
        return float(np.percentile(values, q)) if len(values) else float("nan")

    # ------------------------------------------------------------------ Observer

    def decided(self, now_ns: int, event: ev.Event, actions: tuple[act.Action, ...]) -> None:
        """Not asked for."""

    def ended(self, request: SimRequest) -> None:
        if request.warmup:
            self.warmup += 1
            return
        if request.status != "ok" or request.first_token_ns is None or request.last_token_ns is None:
            self.failed += 1
            return
        c, nan = self._columns, float("nan")
        arrived, n = request.arrived_ns, request.output_tokens
        assert request.end_ns is not None
        c["arrived_s"].append(arrived * 1e-9)
        c["turn"].append(request.turn.turn)
        c["ttft_s"].append((request.first_token_ns - arrived) * 1e-9)
        c["tpot_s"].append(
            (request.last_token_ns - request.first_token_ns) * 1e-9 / (n - 1) if n > 1 else nan
        )
        c["e2e_s"].append((request.end_ns - arrived) * 1e-9)
        c["prefill_s"].append(
            nan if request.prefill_done_ns is None else (request.prefill_done_ns - arrived) * 1e-9
        )
        c["transfer_s"].append(nan if request.transfer_ns is None else request.transfer_ns * 1e-9)
        c["stall_s"].append(request.stall_ns * 1e-9 if request.stall_ns else nan)
        c["prompt_tokens"].append(request.prompt_tokens)
        c["cached_tokens"].append(nan if request.cached_tokens is None else request.cached_tokens)
        c["output_tokens"].append(n)
        c["relay_tokens"].append(request.relay_tokens)
        c["main_kv_bytes"].append(request.main_kv_bytes)
        self._pipelines.append(request.pipeline)

    def unsent(self, session: Session, turn: Turn, now_ns: int, error: str, *, warmup: bool) -> None:  # noqa: ARG002
        self.abandoned += 1

    def sample(self, now_ns: int, workers: Sequence[SimWorker], wan: WanPool) -> None:
        """Nothing of the state is kept."""
