"""Whether a line carries a model's KV: bytes a second that a trace makes, against what the pool gets across.

MD is taken to hold all that it ever held (an infinite decode-side cache): with it, a request sends what its
prompt has beyond the context that it continues; without it, the whole prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.costs.profile import ModelProfile
from harness.sim.event_queue import EventQueue
from harness.sim.session import Session
from harness.sim.wan import Flow, LineModel, WanPool

_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_SATURATED: Final = 1.0
_TIGHT: Final = 0.8
_FEW: Final = 0.01
_MANY: Final = 0.3


class Demand(msgspec.Struct, frozen=True):
    """What the requests put on the line, and how long their transfers take there."""

    kv_bytes_s: float
    utilisation: float
    """Demand over what the full line carries of payload."""
    transfer_s: tuple[float, ...]
    """At the percentiles 50, 90, 99 and 99.9; infinite where demand exceeds the line."""
    beyond_share: float
    """Share of the requests whose transfer takes longer than the bound."""


class Feasibility(msgspec.Struct, frozen=True):
    """The analysis of one model, trace, rate and line."""

    requests: int
    mean_prompt_tokens: float
    mean_hit: float
    """Mean over requests of what MD holds of the prompt."""
    with_cache: Demand
    without_cache: Demand
    bound_s: float
    verdict: str


def analyse(
    sessions: Iterable[Session],
    model: ModelProfile,
    line: LineModel,
    *,
    rate: float,
    arrival_cv2: float,
    bound_s: float,
    seed: int,
) -> Feasibility:
    """Offer the trace's transfers to the line at `rate` requests a second. ValueError for an empty trace."""
    prompts: list[int] = []
    held: list[int] = []
    for session in sessions:
        for turn in session.turns:
            prompts.append(turn.prompt_tokens)
            held.append(turn.kept_tokens + turn.base_output_tokens)
    if not prompts:
        raise ValueError("the trace holds no request")
    prompt, hit = np.array(prompts, np.float64), np.array(held, np.float64)
    rng = np.random.default_rng([seed, 0xFEA])
    order = rng.permutation(len(prompt))
    shape = 1 / arrival_cv2
    starts = np.cumsum(rng.gamma(shape, 1 / (shape * rate), len(prompt)))
    demands = [
        _demand(_kv_bytes(model, tokens[order]), starts, line, rate, bound_s, seed)
        for tokens in (np.maximum(prompt - hit, 1), prompt)
    ]
    return Feasibility(
        requests=len(prompt),
        mean_prompt_tokens=float(prompt.mean()),
        mean_hit=float((hit / prompt).mean()),
        with_cache=demands[0],
        without_cache=demands[1],
        bound_s=bound_s,
        verdict=_verdict(demands[0], demands[1], bound_s),
    )


def _kv_bytes(model: ModelProfile, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    recent = np.minimum(tokens, model.recent_tokens.value)
    return tokens * model.kv_bytes_per_token.value + recent * model.recent_extra_bytes_per_token.value


def _demand(
    kv_bytes: NDArray[np.float64],
    starts: NDArray[np.float64],
    line: LineModel,
    rate: float,
    bound_s: float,
    seed: int,
) -> Demand:
    demand = float(kv_bytes.mean()) * rate
    utilisation = demand / line.pool_bytes_s if line.pool_bytes_s > 0 else math.inf
    if utilisation >= _SATURATED:
        return Demand(demand, utilisation, (math.inf,) * len(_PERCENTILES), 1.0)
    times = _transfer_times(kv_bytes, starts, line, seed)
    return Demand(
        demand,
        utilisation,
        tuple(float(v) for v in np.percentile(times, _PERCENTILES)),
        float((times > bound_s).mean()),
    )


def _transfer_times(
    kv_bytes: NDArray[np.float64], starts: NDArray[np.float64], line: LineModel, seed: int
) -> NDArray[np.float64]:
    queue = EventQueue()
    pool = WanPool(queue, line, seed)
    times = np.zeros(len(kv_bytes))

    def landed(flow: Flow) -> None:
        index = flow.argument
        assert isinstance(index, int)
        times[index] = queue.now_ns * 1e-9 - starts[index]

    def begin(index: int) -> None:
        pool.start(max(1, round(float(kv_bytes[index]))), landed, index)

    for i, at_s in enumerate(starts.tolist()):
        queue.at(round(at_s * 1e9), begin, i)
    queue.run()
    return times


def _verdict(with_cache: Demand, without_cache: Demand, bound_s: float) -> str:
    used, beyond = with_cache.utilisation, with_cache.beyond_share
    if used >= _SATURATED:
        return (
            f"not feasible: even with the decode-side cache, KV needs {used:.1f} times what the line carries"
        )
    cache = "" if without_cache.utilisation < _SATURATED else " (without the decode-side cache it would not)"
    tight = f"; the line is tight at {used:.0%}" if used >= _TIGHT else ""
    slow = f"{beyond:.1%} of the requests exceed {bound_s:g} s"
    if beyond <= _FEW:
        return f"feasible without a relay: the line carries it{cache}, {slow}"
    if beyond <= _MANY:
        return f"feasible with a relay: the line carries it{cache}, but {slow} and want one{tight}"
    return f"doubtful: the line carries it{cache}, but {slow}: most traffic would be relayed{tight}"
