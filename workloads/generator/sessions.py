"""The agentic session model, one turn of every session at a time.

A session begins with a head that others share, grows by appended tool results and answers, and now and
then loses its prefix: rewritten after the head, compacted, or rewritten whole. Sessions advance in
lockstep, so a million turns are a few hundred array operations.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workloads.generator.arrivals import zipf_weights
from workloads.generator.mixture import Mixture
from workloads.generator.parameters import Overflow, Parameters
from workloads.trace import Trigger

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Event(enum.IntEnum):
    """What happened to the context before a turn."""

    FIRST = 0
    PLAIN = 1
    HEAD_BREAK = 2
    COMPACTION = 3
    REWRITE = 4


@dataclass(frozen=True, slots=True, eq=False)
class SessionTurns:
    """Columns of the drawn turns, grouped by session; `group` and `head_tokens` are per session.

    group is -1 where the session has a head of its own.
    """

    turns: NDArray[np.int64]
    group: NDArray[np.int64]
    head_tokens: NDArray[np.int64]
    event: NDArray[np.int8]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    delay_ns: NDArray[np.int64]
    trigger: NDArray[np.int8]


def draw_sessions(
    p: Parameters, count: int, rng: np.random.Generator, heads: NDArray[np.int64]
) -> SessionTurns:
    """Draw `count` multi-turn sessions; `heads` are the lengths of the shared heads."""
    wanted = np.ceil(rng.exponential(p.turns_mean - 0.5, count)).astype(np.int64).clip(1)
    group, head = _heads(p, count, rng, heads)
    start = np.concatenate(([0], np.cumsum(wanted)))
    total = int(start[-1])
    turn = np.arange(total) - np.repeat(start[:-1], wanted)
    first = turn == 0
    session = np.repeat(np.arange(count), wanted)

    growth_z, output_z = _correlated(p, session, first, rng)
    growth = np.ceil(Mixture(p.growth.mixture).at_normal(growth_z)).astype(np.int64).clip(1)
    output = np.round(Mixture(p.output.mixture).at_normal(output_z) * p.output.scale).astype(np.int64)
    output = output.clip(1, p.context_tokens // 2)
    event = _events(p, first, rng)
    compaction = Mixture((p.breaks.compaction,)).at_normal(rng.standard_normal(total)).clip(0.01, 0.5)
    user = (rng.random(total) < p.gaps.user_share) | first
    wait_z = rng.standard_normal(total)
    wait = np.where(user, Mixture(p.gaps.user_s).at_normal(wait_z), Mixture(p.gaps.tool_s).at_normal(wait_z))
    wait[first] = 0

    room = p.context_tokens - 1
    least = head + p.block_size
    begun = _first_inputs(p, count, rng)
    tokens = np.zeros(total, np.int64)
    tokens[start[:-1]] = np.minimum(np.maximum(begun, least), room - output[start[:-1]])
    kept = np.ones(total, bool)
    alive = np.flatnonzero(wanted > 1)
    for k in range(1, int(wanted.max(initial=1))):
        alive = alive[wanted[alive] > k]
        at = start[alive] + k
        grown = growth[at]
        if p.growth.least_new is not None:
            grown = np.maximum(grown, output[at - 1] + p.growth.least_new)
        size = tokens[at - 1] + grown
        squeezed = np.maximum((tokens[at - 1] * compaction[at]).astype(np.int64), least[alive])
        size = np.where(event[at] == Event.COMPACTION, squeezed, size)
        over = size + output[at] > room
        if p.overflow is Overflow.COMPACT:
            size = np.where(over, np.minimum(squeezed, room - output[at]), size)
            event[at[over]] = Event.COMPACTION
        else:
            for s, a in zip(alive[over], at[over], strict=True):
                kept[a : start[s + 1]] = False
            alive, at, size = alive[~over], at[~over], size[~over]
        tokens[at] = size
    counts = np.add.reduceat(kept, start[:-1]).astype(np.int64)
    return SessionTurns(
        turns=counts,
        group=group,
        head_tokens=head,
        event=event[kept],
        input_tokens=tokens[kept],
        output_tokens=output[kept],
        delay_ns=np.round(wait[kept] * 1e9).astype(np.int64),
        trigger=np.where(user[kept], Trigger.USER, Trigger.TOOL).astype(np.int8),
    )


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
    """AR(1) of unit variance within each session."""
    from scipy.signal import lfilter  # noqa: PLC0415 - slow to import, wanted by few parameters

    scaled = np.where(first, noise, np.sqrt(1 - step**2) * noise)
    running = np.asarray(lfilter([1.0], [1.0, -step], scaled), np.float64)
    # What earlier sessions left in the filter fades as step^k: take it out exactly.
    starts = np.flatnonzero(first)
    length = np.diff(np.append(starts, len(noise)))
    left = np.where(starts > 0, running[starts - 1], 0.0)
    age = np.arange(len(noise)) - np.repeat(starts, length) + 1
    return np.asarray(running - np.repeat(left, length) * step**age, np.float64)


def _events(p: Parameters, first: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int8]:
    u = rng.random(len(first))
    b = p.breaks
    event = np.full(len(first), Event.PLAIN, np.int8)
    event[u < b.head_share + b.compaction_share + b.rewrite_share] = Event.REWRITE
    event[u < b.head_share + b.compaction_share] = Event.COMPACTION
    event[u < b.head_share] = Event.HEAD_BREAK
    event[first] = Event.FIRST
    return event
