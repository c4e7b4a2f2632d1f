"""Puts drawn sessions, single requests and arrivals together as a Trace."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from workloads.chains import Chains, owned, tree_of
from workloads.generator.arrivals import ArrivalClock
from workloads.generator.reshape import reshape
from workloads.generator.sessions import Event, SessionTurns, draw_sessions, head_lengths
from workloads.generator.singles import Singles, draw_singles
from workloads.generator.skew import target_rates
from workloads.trace import UNKNOWN, Header, Tail, Trace, Trigger, Turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from workloads.generator.parameters import Parameters

FORMAT: Final = "synthetic"
_SPARE: Final = 1.2  # sessions drawn beyond the expected number, so that one draw mostly suffices


def generate(p: Parameters, *, name: str, seed: int, requests: int | None = None) -> Trace:
    """The trace of these parameters: `p.sessions` conversations, or as many as make `requests` requests.

    Equal seeds give equal traces. Ultra-short requests come on top of p.sessions, and within `requests`.
    """
    rng = np.random.default_rng(seed)
    digest = hashlib.sha256(msgspec.json.encode((p, name, seed, requests))).hexdigest()
    heads = head_lengths(p, rng)
    return _part(p, heads, ArrivalClock(p.arrivals), rng, requests, _Naming(name, digest, ""))


def generate_parts(
    p: Parameters, *, name: str, seed: int, requests: int, part_requests: int
) -> Iterator[Trace]:
    """A long trace as parts that follow on one another in time and share their heads.

    Each part hits the skew asked for by itself. Sessions and documents carry the part's number in their
    names; `workloads.writers.native.write_parts` puts the parts into one file.
    """
    heads = head_lengths(p, np.random.default_rng(seed))
    clock = ArrivalClock(p.arrivals)
    digest = hashlib.sha256(msgspec.json.encode((p, name, seed, requests, part_requests))).hexdigest()
    for number, done in enumerate(range(0, requests, part_requests)):
        rng = np.random.default_rng((seed, number))
        count = min(part_requests, requests - done)
        yield _part(p, heads, clock, rng, count, _Naming(name, digest, f"p{number}."))


@dataclass(frozen=True, slots=True)
class _Naming:
    """Names of a trace and what stands before those of its sessions and documents."""

    name: str
    digest: str
    prefix: str


def _part(
    p: Parameters,
    heads: NDArray[np.int64],
    clock: ArrivalClock,
    rng: np.random.Generator,
    requests: int | None,
    naming: _Naming,
) -> Trace:
    share = p.ultra_short.share if p.ultra_short else 0.0
    if requests is None:
        drawn = draw_sessions(p, p.sessions, rng, heads)
        alone = round(len(drawn.input_tokens) * share / (1 - share))
    else:
        alone = min(round(requests * share), requests - 1)
        drawn = _exactly(p, requests - alone, rng, heads)
    singles = draw_singles(p, alone, rng)
    if p.skew is not None:
        drawn = _skewed(p, drawn, singles)
    sessions = len(drawn.turns) + len(singles)
    at, client = clock.arrivals(sessions, rng)
    # Which arrivals are conversations and which are single requests: a seeded shuffle.
    kind = rng.permutation(sessions)
    assembly = _Assembly(p, heads, drawn, singles, kind)
    return assembly.trace(naming, np.round(at * 1e9).astype(np.int64), client)


def _exactly(p: Parameters, turns: int, rng: np.random.Generator, heads: NDArray[np.int64]) -> SessionTurns:
    """Sessions of just so many turns together; the last one is cut."""
    count = int(turns / p.turns_mean * _SPARE) + 8
    drawn = draw_sessions(p, count, rng, heads)
    while len(drawn.input_tokens) < turns:
        count *= 2
        drawn = draw_sessions(p, count, rng, heads)
    last = int(np.searchsorted(np.cumsum(drawn.turns), turns))
    per_session = drawn.turns[: last + 1].copy()
    per_session[-1] -= int(per_session.sum()) - turns
    return SessionTurns(
        turns=per_session,
        group=drawn.group[: last + 1],
        head_tokens=drawn.head_tokens[: last + 1],
        event=drawn.event[:turns],
        input_tokens=drawn.input_tokens[:turns],
        output_tokens=drawn.output_tokens[:turns],
        kept_blocks=drawn.kept_blocks[:turns],
        growth=drawn.growth[:turns],
        delay_ns=drawn.delay_ns[:turns],
        trigger=drawn.trigger[:turns],
    )


def _skewed(p: Parameters, drawn: SessionTurns, singles: Singles) -> SessionTurns:
    assert p.skew is not None
    natural = drawn.kept_blocks * p.block_size / drawn.input_tokens
    cold_first = (drawn.event == Event.FIRST) & np.repeat(drawn.group < 0, drawn.turns)
    alone = singles.held_blocks * p.block_size / singles.input_tokens
    rates = natural.copy()
    rates[~cold_first] = target_rates(
        p.skew, natural[~cold_first], np.concatenate((natural[cold_first], alone))
    )
    return reshape(p, drawn, rates)


class _Assembly:
    """Builds the columns, sessions in order of arrival: `kind` names which one each arrival is."""

    def __init__(
        self,
        p: Parameters,
        heads: NDArray[np.int64],
        drawn: SessionTurns,
        singles: Singles,
        kind: NDArray[np.int64],
    ) -> None:
        self.p = p
        self.heads = heads
        self.many = len(drawn.turns)
        alone = len(singles)
        turns = np.concatenate((drawn.turns, np.ones(alone, np.int64)))
        self.counts = turns[kind]
        self.turn_start = np.concatenate(([0], np.cumsum(self.counts)))
        total = int(self.turn_start[-1])
        source = (np.cumsum(turns) - turns)[kind]
        take = np.repeat(source - self.turn_start[:-1], self.counts) + np.arange(total)
        self.first = np.repeat(self.turn_start[:-1], self.counts)
        self.within = np.arange(total) - self.first
        self.single = kind >= self.many
        self.group = np.concatenate((drawn.group, np.full(alone, -1)))[kind]
        self.head_tokens = np.concatenate((drawn.head_tokens, np.zeros(alone, np.int64)))[kind]
        self.document = np.concatenate((np.full(self.many, -1), singles.document))[kind]
        self.event = np.concatenate((drawn.event, np.full(alone, Event.FIRST, np.int8)))[take]
        self.kept = np.concatenate((drawn.kept_blocks, singles.held_blocks))[take]
        self.input_tokens = np.concatenate((drawn.input_tokens, singles.input_tokens))[take]
        self.output_tokens = np.concatenate((drawn.output_tokens, singles.output_tokens))[take]
        self.delay_ns = np.concatenate((drawn.delay_ns, np.zeros(alone, np.int64)))[take]
        self.trigger = np.concatenate((drawn.trigger, np.full(alone, Trigger.USER, np.int8)))[take]

    def trace(self, naming: _Naming, start_ns: NDArray[np.int64], client: NDArray[np.int64]) -> Trace:
        p, total, sessions = self.p, len(self.first), len(self.counts)
        width = len(str(max(sessions - 1, 1)))
        names = tuple(f"{naming.prefix}s{s:0{width}d}" for s in range(sessions))
        documents = int(self.document.max(initial=-1)) + 1
        scopes = (
            "",
            *names,
            *(f"head {g}" for g in range(len(self.heads))),
            *(f"{naming.prefix}document {d}" for d in range(documents)),
        )
        tree, node = tree_of(self._chains(), p.block_size, scopes)
        service = np.round((p.service.ttft_s + self.output_tokens * p.service.tpot_s) * 1e9).astype(np.int64)
        tenants = tuple(f"client_{c}" for c in range(p.arrivals.clients)) if p.arrivals.clients > 1 else ()
        follows = self.within > 0
        base = np.where(np.isin(self.event, (Event.PLAIN, Event.EDIT)), self.within - 1, 0)
        base[~follows | (self.event == Event.REWRITE)] = UNKNOWN
        return Trace(
            header=Header(
                name=naming.name,
                format=FORMAT,
                digest=naming.digest,
                block_size=p.block_size,
                tail=Tail.WHOLE,
                targets=p.targets,
            ),
            session_ids=names,
            session_start_ns=start_ns,
            turn_start=self.turn_start,
            turns=Turns(
                arrival_ns=_planned(
                    self.delay_ns, service, np.repeat(start_ns, self.counts), self.turn_start
                ),
                service_ns=service,
                delay_ns=self.delay_ns,
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                node=node,
                base=base.astype(np.int32),
                after_start=np.concatenate(([0], np.cumsum(follows))),
                after=(self.within - 1)[follows].astype(np.int32),
                shared_tokens=np.repeat(np.where(self.group >= 0, self.head_tokens, 0), self.counts),
                trigger=self.trigger,
                agent=np.repeat(self.single, self.counts).astype(np.int32),
                tenant=(np.repeat(client, self.counts) if tenants else np.full(total, UNKNOWN)).astype(
                    np.int32
                ),
                priority=np.zeros(total, np.int32),
            ),
            tree=tree,
            agents=("main", "ultra_short"),
            tenants=tenants,
        )

    def _chains(self) -> Chains:
        p, total = self.p, len(self.first)
        rows = np.arange(total)
        blocks = self.input_tokens // p.block_size
        parent = np.where(np.isin(self.event, (Event.PLAIN, Event.EDIT)), rows - 1, self.first)
        shared = self.kept.copy()
        common_scope, common_blocks = self._heads(parent, shared)
        self._documents(parent, shared, common_scope, common_blocks)
        parent[shared == 0] = UNKNOWN
        own = blocks - shared - common_blocks
        # Two runs a turn at most: the common part that it is the first to send, and its own.
        length = np.stack((common_blocks, own), axis=1).reshape(-1)
        session = np.repeat(np.arange(len(self.counts)), self.counts)
        scope = np.stack((common_scope, 1 + session), axis=1).reshape(-1)
        counted = np.cumsum(own) - own
        first_id = np.stack((shared, counted - counted[self.first]), axis=1).reshape(-1)
        used = length > 0
        run_start = np.concatenate(([0], np.cumsum(used.reshape(-1, 2).sum(axis=1))))
        return Chains(
            parent_row=owned(parent, shared),
            shared=shared,
            blocks=blocks,
            run_start=run_start,
            run_scope=scope[used].astype(np.int32),
            run_blocks=length[used],
            run_first=first_id[used].astype(np.uint64),
            run_at=np.full(int(used.sum()), -1),
            ids=np.zeros(0, np.uint64),
        )

    def _heads(
        self, parent: NDArray[np.int64], shared: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First turns begin like the first one of their group, which alone sends the head as its own."""
        scope = np.zeros(len(parent), np.int64)
        blocks = np.zeros(len(parent), np.int64)
        firsts = self.turn_start[:-1]
        warm = np.flatnonzero(self.group >= 0)
        groups, earliest = np.unique(self.group[warm], return_index=True)
        opener = np.zeros(len(self.heads), np.int64)
        opener[groups] = firsts[warm[earliest]]
        parent[firsts[warm]] = opener[self.group[warm]]
        opened = opener[groups]
        shared[opened] = 0
        blocks[opened] = self.heads[groups] // self.p.block_size
        scope[opened] = 1 + len(self.counts) + groups
        return scope, blocks

    def _documents(
        self,
        parent: NDArray[np.int64],
        shared: NDArray[np.int64],
        scope: NDArray[np.int64],
        blocks: NDArray[np.int64],
    ) -> None:
        """A request begins like the earlier one that took most of its document, and may take more of it."""
        longest: dict[int, tuple[int, int]] = {}
        first_scope = 1 + len(self.counts) + len(self.heads)
        for s in np.flatnonzero(self.document >= 0).tolist():
            row, document = int(self.turn_start[s]), int(self.document[s])
            wanted = int(shared[row])
            before, reach = longest.get(document, (UNKNOWN, 0))
            parent[row] = before
            shared[row] = min(wanted, reach)
            if wanted > reach:
                scope[row], blocks[row] = first_scope + document, wanted - reach
                longest[document] = (row, wanted)


def _planned(
    delay: NDArray[np.int64],
    service: NDArray[np.int64],
    start: NDArray[np.int64],
    turn_start: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Instant of each turn when every answer lasts its service time."""
    step = delay + np.concatenate(([0], service[:-1]))
    step[turn_start[:-1]] = delay[turn_start[:-1]]
    run = np.cumsum(step)
    before = run[turn_start[:-1]] - step[turn_start[:-1]]
    return start + run - np.repeat(before, np.diff(turn_start))
