"""vLLM's own account of where positions came from, and whether it agrees with what the engine reports.

vLLM counts once a request, when it first schedules it: positions found in its prefix cache, positions
from the connector, positions to compute (`vllm:prompt_tokens_by_source_total` shows the same). A sequence
that is extended twice is two requests, and the second finds in the cache what the first has computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapters.engines.vllm.job import Job


@dataclass(slots=True)
class SourceCounts:
    """Tokens since start."""

    local_compute_tokens: int = 0
    local_cache_hit_tokens: int = 0
    external_kv_transfer_tokens: int = 0
    recomputed_tokens: int = 0
    """Positions to compute although the sequence held their KV. Must be 0."""
    ended_early_tokens: int = 0
    """Positions to compute of which the request was relieved."""
    fed_back_tokens: int = 0
    """Answer tokens computed as positions: they belong to no prompt."""

    def admitted(self, job: Job) -> None:
        """vLLM has scheduled the request for the first time."""
        assert job.base is not None
        self.local_compute_tokens += job.end - job.base
        self.local_cache_hit_tokens += job.local
        self.external_kv_transfer_tokens += job.external
        self.recomputed_tokens += max(0, job.believed - job.base)

    def ended(self, job: Job) -> None:
        if job.base is not None:
            self.ended_early_tokens += max(0, job.end - job.computed)
            self.fed_back_tokens += max(0, job.computed - job.end)

    def disagreement(self, computed_tokens: int) -> str | None:
        """One line if `computed_tokens`, reported by steps, are not what vLLM said it would compute. Call it
        when no request is at work."""
        if self.recomputed_tokens:
            return f"vLLM recomputed {self.recomputed_tokens} positions whose KV was held"
        expected = self.local_compute_tokens - self.ended_early_tokens + self.fed_back_tokens
        if computed_tokens != expected:
            return (
                f"steps computed {computed_tokens} positions, vLLM counted {expected} "
                f"({self.local_compute_tokens} of prompts - {self.ended_early_tokens} ended early + "
                f"{self.fed_back_tokens} answer tokens fed back)"
            )
        return None
