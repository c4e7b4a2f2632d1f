"""Screening by arithmetic: what each stage of a candidate carries, without queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.costs.deployment import Deployment
from harness.policy.roles import Role
from harness.sim.planning.arena import Arena, Traffic
from harness.sim.planning.candidate import Candidate, Slo

_PREFILL_USE: Final = 0.85
"""Use of P at which TTFT's tail is still bearable."""
_LINE_USE: Final = 0.9
_DECODE_USE: Final = 0.85
"""Use of decoders: their batch swings, and the TPOT bound holds for nearly every request."""
_RELAYED_SHARE: Final = 0.08
"""Share of the output tokens that the relay makes, about the report's."""
_MOST_SEQUENCES: Final = 4096


def stage_rates(arena: Arena, candidate: Candidate, traffic: Traffic, slo: Slo) -> dict[str, float]:
    """Requests a second that prefill, relay, main decoders and the line carry at most."""
    prefill = arena.deployment(Role.PREFILL, candidate.prefill_devices)
    main = arena.deployment(Role.MAIN_DECODE, candidate.main_devices)
    past = max(0.0, traffic.prompt_tokens - traffic.miss_tokens)
    pairs = traffic.miss_tokens * (past + traffic.miss_tokens / 2)
    prefill_s = traffic.miss_tokens * prefill.linear_s_per_token + pairs * prefill.attention_s_per_pair
    context = traffic.prompt_tokens + traffic.output_tokens / 2
    main_tokens_s = _tokens_s(main, context, slo.tpot_ms / 1e3)
    kv_bytes = main.kv_bytes(0, round(traffic.miss_tokens))
    rates = {
        "prefill": _PREFILL_USE * candidate.prefill_workers / prefill_s,
        "main": _DECODE_USE * candidate.main_workers * main_tokens_s / traffic.output_tokens,
        "line": _LINE_USE * arena.line(candidate).pool_bytes_s / kv_bytes,
    }
    if candidate.relay_workers:
        relay = arena.deployment(Role.RELAY_DECODE, candidate.relay_devices)
        relay_tokens_s = candidate.relay_workers * _tokens_s(relay, context, slo.tpot_ms / 1e3)
        rates["relay"] = _DECODE_USE * relay_tokens_s / (_RELAYED_SHARE * traffic.output_tokens)
    return rates


def estimate(arena: Arena, candidate: Candidate, traffic: Traffic, slo: Slo) -> float:
    """The weakest stage's rate."""
    return min(stage_rates(arena, candidate, traffic, slo).values())


def _tokens_s(deployment: Deployment, context: float, tpot_s: float) -> float:
    """Most tokens a second at which a worker still steps within the TPOT bound; 0 when it never does."""
    batch = _largest_batch(deployment.decode_s, context, tpot_s, deployment.max_sequences(round(context)))
    return batch / deployment.decode_s(batch, round(batch * context)) if batch else 0.0


def _largest_batch(decode_s: Callable[[int, int], float], context: float, tpot_s: float, most: int) -> int:
    """Most sequences that step within the TPOT bound and fit."""
    low, high = 0, max(0, min(most, _MOST_SEQUENCES))
    while low < high:
        middle = (low + high + 1) // 2
        if decode_s(middle, round(middle * context)) <= tpot_s:
            low = middle
        else:
            high = middle - 1
    return low
