"""Did a worker compute what it held? Its own counters against what the policy asked of it.

Whatever a worker computes, the policy has asked for: the uncached part of a prefill, a batch of ids, the
context in front of a decode, and each token decoded but the last. A worker that has computed more than that
has computed KV anew that was there. The counters are the engine's (vLLM's own, where vLLM computes), told
in `worker_samples`; what was asked stands in `decisions`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from harness.policy import actions as act
from harness.policy import events as ev
from reports.run import Run

_events: Final = msgspec.json.Decoder(ev.Event)
_actions: Final = msgspec.json.Decoder(tuple[act.Action, ...])


@dataclass(slots=True)
class _Asked:
    """Positions by worker, besides those of decoded tokens. Work that was cut short counts in full."""

    positions: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    prompts: dict[ev.RequestId, int] = field(default_factory=dict)
    prefills: dict[ev.WorkId, act.Prefill] = field(default_factory=dict)
    decodes: dict[ev.WorkId, act.Decode] = field(default_factory=dict)
    """Of which no token has come yet."""

    def happened(self, event: ev.Event) -> None:
        match event:
            case ev.RequestArrived():
                self.prompts[event.request] = event.prompt_tokens
            case ev.PrefillDone() if (prefill := self.prefills.pop(event.work, None)) is not None:
                self.positions[prefill.worker] += event.computed - prefill.positions
            case ev.TokensDecoded() if (decode := self.decodes.pop(event.work, None)) is not None:
                # The last of its tokens is sampled, not computed.
                self.positions[decode.worker] -= 1
            case _:
                pass

    def asked(self, action: act.Action) -> None:
        match action:
            case act.Prefill():
                self.prefills[action.work] = action
                self.positions[action.worker] += action.positions
            case act.Extend():
                self.positions[action.worker] += action.p1 - action.p0
            case act.Decode():
                self.decodes[action.work] = action
                self.positions[action.worker] += self.prompts[action.request] + action.first - action.p0
            case act.Settled():
                self.prompts.pop(action.request, None)
            case _:
                pass


def recomputed(run: Run, cell: str, rep: int) -> list[str]:
    """One line for each worker that computed more than it was asked for; none when decisions were not
    recorded, or an engine does not count."""
    if not run.shards("decisions", cell, rep):
        return []
    asked = _Asked()
    for event, actions in _decisions(run, cell, rep):
        asked.happened(event)
        for action in actions:
            asked.asked(action)
    lines = []
    for worker, computed in _computed(run, cell, rep).items():
        believed = asked.positions[worker]
        if computed > believed:
            lines.append(
                f"recomputed: {worker} computed {computed} positions of contexts, the policy asked for "
                f"{believed}: {computed - believed} were computed although they were held"
            )
    return lines


def _decisions(run: Run, cell: str, rep: int) -> Iterator[tuple[ev.Event, tuple[act.Action, ...]]]:
    for batch in run.batches("decisions", cell, rep, ["event", "actions"]):
        for row in batch.to_pylist():
            yield _events.decode(row["event"]), _actions.decode(row["actions"])


def _computed(run: Run, cell: str, rep: int) -> dict[str, int]:
    """Positions computed by each worker besides decoded tokens, by its last sample."""
    columns = ["t_ns", "worker", "computed_tokens", "decoded_tokens"]
    rows = run.table("worker_samples", cell, rep, columns).sort_by("t_ns").to_pylist()
    counted = (row for row in rows if row["computed_tokens"] is not None)
    return {row["worker"]: row["computed_tokens"] - row["decoded_tokens"] for row in counted}
