"""The agentic session model, one turn of every session at a time.

A session begins with a head that others share, grows by appended tool results and answers, and now and
then loses its prefix: rewritten after the head, compacted, or rewritten whole. Sessions advance in
lockstep, so a million turns are a few hundred array operations.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.generator.arrivals import zipf_weights
from workloads.generator.mixture import Mixture
from workloads.generator.parameters import Overflow, Parameters
from workloads.trace import Trigger

if TYPE_CHECKING:
    from numpy.typing import NDArray


_FADED: Final = 1e-6


class Event(enum.IntEnum):
    """What happened to the context before a turn."""

    FIRST = 0
    PLAIN = 1
    HEAD_BREAK = 2
    COMPACTION = 3
    REWRITE = 4
    EDIT = 5  # the end of the context is replaced, from some point on


@dataclass(frozen=True, slots=True, eq=False)
class SessionTurns:
    """Columns of the drawn turns, grouped by session; `turns`, `group` and `head_tokens` are per session.

    group        shared head of the session, -1 where it has its own
    kept_blocks  leading blocks shared with: the group's head (FIRST), the turn before (PLAIN, EDIT), the
                 session's first turn (HEAD_BREAK, COMPACTION), nothing (REWRITE)
    growth       growth drawn for the turn, whether or not it came to pass
    """

    turns: NDArray[np.int64]
    group: NDArray[np.int64]
    head_tokens: NDArray[np.int64]
    event: NDArray[np.int8]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    kept_blocks: NDArray[np.int64]
    growth: NDArray[np.int64]
    delay_ns: NDArray[np.int64]
    trigger: NDArray[np.int8]

    @property
    def start(self) -> NDArray[np.int64]:
        """Offset of each session's first turn."""
        return np.cumsum(self.turns) - self.turns


def draw_sessions(
    p: Parameters, count: int, rng: np.random.Generator, heads: NDArray[np.int64]
) -> SessionTurns:
    """Draw `count` multi-turn sessions; `heads` are the lengths of the shared heads."""
    wanted = rng.geometric(1 / p.turns_mean, count)  # an exponential law, in whole turns
    group, head = _heads(p, count, rng, heads)
    start = np.concatenate(([0], np.cumsum(wanted)))
    total = int(start[-1])
    session = np.repeat(np.arange(count), wanted)
    first = np.zeros(total, bool)
    first[start[:-1]] = True

    growth_z, output_z = _correlated(p, session, first, rng)
    output = np.round(Mixture(p.output.mixture).at_normal(output_z) * p.output.scale).astype(np.int64)
    output = output.clip(1, p.context_tokens // 2)
    event = _events(p, first, rng)
    compaction = Mixture((p.breaks.compaction,)).at_normal(rng.standard_normal(total)).clip(0.01, 0.5)
    user = (rng.random(total) < p.gaps.user_share) | first
    wait_z = rng.standard_normal(total)
    wait = np.where(user, Mixture(p.gaps.user_s).at_normal(wait_z), Mixture(p.gaps.tool_s).at_normal(wait_z))
    wait[first] = 0

    begun = _first_inputs(p, count, rng)
    if p.shared.groups == 0:
        # A head of one's own gives way to a short first prompt; a shared one is what it is.
        head = np.minimum(head, np.maximum(begun // p.block_size - 1, 1) * p.block_size)
    lengths = _Lengths(p, wanted, head, growth_z, output, event, compaction)
    lengths.run(begun)
    kept = lengths.kept
    counts = np.add.reduceat(kept, start[:-1]).astype(np.int64)
    drawn = SessionTurns(
        turns=counts,
        group=group,
        head_tokens=head,
        event=event[kept],
        input_tokens=lengths.tokens[kept],
        output_tokens=output[kept],
        kept_blocks=np.zeros(int(kept.sum()), np.int64),
        growth=lengths.growth[kept],
        delay_ns=np.round(wait[kept] * 1e9).astype(np.int64),
        trigger=np.where(user[kept], Trigger.USER, Trigger.TOOL).astype(np.int8),
    )
    return replace(drawn, kept_blocks=_kept_blocks(p, drawn))


class _Lengths:
    """Prompt lengths, turn by turn over all sessions at once."""

    def __init__(
        self,
        p: Parameters,
        wanted: NDArray[np.int64],
        head: NDArray[np.int64],
        growth_z: NDArray[np.float64],
        output: NDArray[np.int64],
        event: NDArray[np.int8],
        compaction: NDArray[np.float64],
    ) -> None:
        self.p = p
        self.wanted = wanted
        self.start = np.cumsum(wanted) - wanted
        self.least = head + p.block_size
        self.output = output
        self.event = event
        self.compaction = compaction
        self.relative = p.growth.relative is not None
        parts = (p.growth.relative,) if p.growth.relative is not None else p.growth.mixture
        self.drawn_growth = Mixture(parts).at_normal(growth_z)
        self.tokens = np.zeros(len(output), np.int64)
        self.growth = np.zeros(len(output), np.int64)
        self.kept = np.ones(len(output), bool)

    def run(self, first_inputs: NDArray[np.int64]) -> None:
        room = self.p.context_tokens - 1
        begun = np.maximum(first_inputs, self.least)
        self.tokens[self.start] = np.minimum(begun, room - self.output[self.start])
        alive = np.flatnonzero(self.wanted > 1)
        for k in range(1, int(self.wanted.max(initial=1))):
            alive = alive[self.wanted[alive] > k]
            alive = self._step(alive, self.start[alive] + k, room)

    def _step(self, alive: NDArray[np.int64], at: NDArray[np.int64], room: int) -> NDArray[np.int64]:
        """One more turn of these sessions; the sessions that go on."""
        before = self.tokens[at - 1]
        grown = self.drawn_growth[at] * (before if self.relative else 1)
        grown = np.ceil(grown).astype(np.int64).clip(1)
        if self.p.growth.least_new is not None:
            grown = np.maximum(grown, self.output[at - 1] + self.p.growth.least_new)
        self.growth[at] = grown
        squeezed = np.maximum((before * self.compaction[at]).astype(np.int64), self.least[alive])
        size = np.where(self.event[at] == Event.COMPACTION, squeezed, before + grown)
        over = size + self.output[at] > room
        if self.p.overflow is Overflow.COMPACT:
            size = np.where(over, np.minimum(squeezed, room - self.output[at]), size)
            self.event[at[over]] = Event.COMPACTION
        else:
            for s, turn in zip(alive[over], at[over], strict=True):
                self.kept[turn : self.start[s] + self.wanted[s]] = False
            alive, at, size = alive[~over], at[~over], size[~over]
        self.tokens[at] = size
        return alive


def _kept_blocks(p: Parameters, drawn: SessionTurns) -> NDArray[np.int64]:
    """Blocks each turn keeps by its event."""
    depth = drawn.input_tokens // p.block_size
    head = np.repeat(drawn.head_tokens // p.block_size, drawn.turns)
    shared = np.repeat(drawn.group >= 0, drawn.turns)
    before = np.concatenate(([0], depth[:-1]))
    kept = np.where(drawn.event == Event.PLAIN, before, head)
    kept[(drawn.event == Event.REWRITE) | ((drawn.event == Event.FIRST) & ~shared)] = 0
    return np.minimum(kept, depth)


def head_lengths(p: Parameters, rng: np.random.Generator) -> NDArray[np.int64]:
    """Lengths of the shared heads, whole blocks each."""
    drawn = Mixture((p.shared.tokens,)).at_normal(rng.standard_normal(p.shared.groups))
    return _whole_blocks(p, drawn)


def _heads(
    p: Parameters, count: int, rng: np.random.Generator, heads: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if p.shared.groups == 0:
        drawn = Mixture((p.shared.tokens,)).at_normal(rng.standard_normal(count))
        return np.full(count, -1), _whole_blocks(p, drawn)
    group = rng.choice(p.shared.groups, size=count, p=zipf_weights(p.shared.groups, p.shared.zipf))
    return group, heads[group]


def _whole_blocks(p: Parameters, tokens: NDArray[np.float64]) -> NDArray[np.int64]:
    """Head lengths in whole blocks, leaving half the context and two blocks to the rest."""
    most = (p.context_tokens // 2) // p.block_size - 2
    return (np.round(tokens / p.block_size).clip(1, most) * p.block_size).astype(np.int64)


def _first_inputs(p: Parameters, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    z = rng.standard_normal(count)
    drawn = Mixture((p.first.fresh,)).at_normal(z)
    if p.first.resumed is not None:
        resumed = rng.random(count) < p.first.resumed_share
        drawn = np.where(resumed, Mixture((p.first.resumed,)).at_normal(z), drawn)
    return drawn.astype(np.int64)


def _correlated(
    p: Parameters, session: NDArray[np.int64], first: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard normals of growth (tied within a session) and of output (tied to the growth after it)."""
    total = len(session)
    count = int(session[-1]) + 1
    between = p.growth.session_share
    noise = rng.standard_normal(total)
    step = float(np.clip((p.growth.rho - between) / (1 - between), -0.99, 0.99)) if between < 1 else 0.0
    if abs(step) > 1e-3:
        noise = _autoregressive(noise, first, step)
    growth = np.sqrt(between) * rng.standard_normal(count)[session] + np.sqrt(1 - between) * noise
    following = np.append(growth[1:], 0.0)
    output = p.output.rho * following + np.sqrt(1 - p.output.rho**2) * rng.standard_normal(total)
    return growth, output


def _autoregressive(noise: NDArray[np.float64], first: NDArray[np.bool_], step: float) -> NDArray[np.float64]:
    """AR(1) of unit variance within each session: a sum of earlier shocks, until they have faded."""
    shocks = np.where(first, noise, np.sqrt(1 - step**2) * noise)
    starts = np.flatnonzero(first)
    age = np.arange(len(noise)) - np.repeat(starts, np.diff(np.append(starts, len(noise))))
    out = shocks.copy()
    factor = step
    for lag in range(1, int(age.max(initial=0)) + 1):
        if abs(factor) < _FADED:
            break
        out[lag:] += np.where(age[lag:] >= lag, factor * shocks[:-lag], 0.0)
        factor *= step
    return out


def _events(p: Parameters, first: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int8]:
    u = rng.random(len(first))
    b = p.breaks
    event = np.full(len(first), Event.PLAIN, np.int8)
    event[u < b.head_share + b.compaction_share + b.rewrite_share] = Event.REWRITE
    event[u < b.head_share + b.compaction_share] = Event.COMPACTION
    event[u < b.head_share] = Event.HEAD_BREAK
    event[first] = Event.FIRST
    return event
