"""One vLLM request, made by the engine for one `extend`, and what its parts in vLLM need of each other.

vLLM constructs the connector and the sampler itself, so the job travels with the request's sampling
parameters (which vLLM copies: a job stays itself), and both sides of the connector meet in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adapters.engines.vllm.layer_stream import LayerStream
from harness.engine import Decode

ARGUMENT = "pddbench_job"
"""Key of `SamplingParams.extra_args`."""


@dataclass(slots=True, eq=False)
class Job:
    """Compute ids [?, end) of a sequence of which [0, held) have their KV; with `decode`, sample on.

    The connector fills in the rest: `base` (positions that vLLM did not have to compute: `local` found
    in its own prefix cache, `external` brought along) when the request is first scheduled, `computed`
    and `blocks` (with a reference each) when it ends."""

    name: str
    end: int
    held: int
    staged: dict[int, Any]
    """Host copies of KV blocks, (layers, bytes) u8 tensors by block index; dropped once written."""
    decode: Decode | None
    stream: LayerStream | None = None
    """Wants the KV of each layer as it is computed."""
    believed: int = 0
    """`held` as it was when the request was made."""
    request_id: str = ""
    """vLLM's own name of the request."""
    request: Any = None
    base: int | None = None
    local: int = 0
    external: int = 0
    counted: int = 0
    """Positions reported so far."""
    margin: float | None = None
    """Of the token sampled last."""
    computed: int = 0
    blocks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.believed = self.held

    def __deepcopy__(self, memo: dict[int, object]) -> Job:
        return self
