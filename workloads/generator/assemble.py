"""Puts drawn sessions, single requests and arrivals together as a Trace."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from workloads.generator.arrivals import arrival_times, zipf_weights
from workloads.generator.mixture import Mixture
from workloads.generator.sessions import Event, SessionTurns, draw_sessions, head_lengths
from workloads.prefix_tree import NO_NODE, PrefixTree
from workloads.trace import UNKNOWN, Header, Tail, Trace, Trigger, Turns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.generator.parameters import Parameters

FORMAT: Final = "synthetic"


def generate(p: Parameters, *, name: str, seed: int) -> Trace:
    """The trace of these parameters; equal seeds give equal traces."""
    rng = np.random.default_rng(seed)
    heads = head_lengths(p, rng)
    drawn = draw_sessions(p, p.sessions, rng, heads)
    singles = _ultra_short(p, len(drawn.input_tokens), rng)
    sessions = len(drawn.turns) + len(singles.input_tokens)
    at, client = arrival_times(p.arrivals, sessions, rng)
    # Which arrivals are conversations and which are single requests: a seeded shuffle.
    kind = rng.permutation(sessions)
    return _Assembly(p, heads, drawn, singles).trace(
        name, seed, np.round(at * 1e9).astype(np.int64), client, kind
    )


class _Singles:
    """Requests that stand alone: input, output, document (-1: cold) and blocks taken from it."""

    def __init__(
        self,
        inputs: NDArray[np.int64],
        outputs: NDArray[np.int64],
        document: NDArray[np.int64],
        held: NDArray[np.int64],
    ) -> None:
        self.input_tokens = inputs
        self.output_tokens = outputs
        self.document = document
        self.held_blocks = held


def _ultra_short(p: Parameters, turns: int, rng: np.random.Generator) -> _Singles:
    u = p.ultra_short
    if u is None or u.share == 0:
        none = np.zeros(0, np.int64)
        return _Singles(none, none, none, none)
    count = round(turns * u.share / (1 - u.share))
    outputs = rng.integers(u.output_min, u.output_max + 1, count)
    inputs = np.round(Mixture((u.input,)).at_normal(rng.standard_normal(count))).astype(np.int64)
    inputs = inputs.clip(p.block_size, p.context_tokens - 1 - u.output_max)
    held = (inputs * u.hit / p.block_size).astype(np.int64)
    document = rng.choice(u.documents, size=count, p=zipf_weights(u.documents, u.zipf))
    return _Singles(inputs, outputs, np.where(held > 0, document, UNKNOWN), held)


class _Assembly:
    """Builds the columns. Nodes: shared heads, then documents' runs, then one node a turn at most."""

    def __init__(
        self, p: Parameters, heads: NDArray[np.int64], drawn: SessionTurns, singles: _Singles
    ) -> None:
        self.p = p
        self.heads = heads
        self.drawn = drawn
        self.singles = singles

    def trace(
        self,
        name: str,
        seed: int,
        start_ns: NDArray[np.int64],
        client: NDArray[np.int64],
        kind: NDArray[np.int64],
    ) -> Trace:
        p, drawn, singles = self.p, self.drawn, self.singles
        many, alone = len(drawn.turns), len(singles.input_tokens)
        turns = np.concatenate((drawn.turns, np.ones(alone, np.int64)))
        width = len(str(max(many + alone - 1, 1)))
        names = tuple(f"s{s:0{width}d}" for s in range(many + alone))
        place = np.empty(many + alone, np.int64)
        place[kind] = np.arange(many + alone)
        tree, node = self._tree(tuple(names[s] for s in place.tolist()))
        # Sessions in order of arrival: `kind` names which drawn session arrives at each instant.
        source_start = np.concatenate(([0], np.cumsum(turns)))[:-1]
        counts = turns[kind]
        turn_start = np.concatenate(([0], np.cumsum(counts)))
        total = int(turn_start[-1])
        take = np.repeat(source_start[kind] - turn_start[:-1], counts) + np.arange(total)
        within = np.arange(total) - np.repeat(turn_start[:-1], counts)
        event = np.concatenate((drawn.event, np.zeros(alone, np.int8)))[take]
        head = np.concatenate((drawn.head_tokens, np.zeros(alone, np.int64)))[kind]
        shared = np.where(np.concatenate((drawn.group, np.full(alone, -1)))[kind] >= 0, head, 0)
        digest = hashlib.sha256(msgspec.json.encode((p, name, seed))).hexdigest()
        tenants = tuple(f"client_{c}" for c in range(p.arrivals.clients)) if p.arrivals.clients > 1 else ()
        tenant = np.repeat(client, counts).astype(np.int32) if tenants else np.full(total, UNKNOWN, np.int32)
        has_previous = within > 0
        delay = np.concatenate((drawn.delay_ns, np.zeros(alone, np.int64)))[take]
        output = np.concatenate((drawn.output_tokens, singles.output_tokens))[take]
        service = np.round((p.service.ttft_s + output * p.service.tpot_s) * 1e9).astype(np.int64)
        return Trace(
            header=Header(
                name=name, format=FORMAT, digest=digest, block_size=p.block_size, tail=Tail.WHOLE, warnings=()
            ),
            session_ids=names,
            session_start_ns=start_ns,
            turn_start=turn_start,
            turns=Turns(
                arrival_ns=_planned(delay, service, np.repeat(start_ns, counts), turn_start),
                service_ns=service,
                delay_ns=delay,
                input_tokens=np.concatenate((drawn.input_tokens, singles.input_tokens))[take],
                output_tokens=output,
                node=node[take].astype(np.int32),
                base=np.where(has_previous & (event != Event.REWRITE), within - 1, UNKNOWN).astype(np.int32),
                after_start=np.concatenate(([0], np.cumsum(has_previous))),
                after=(within - 1)[has_previous].astype(np.int32),
                shared_tokens=np.repeat(shared, counts),
                trigger=np.concatenate((drawn.trigger, np.full(alone, Trigger.USER, np.int8)))[take],
                agent=np.where(np.arange(many + alone)[kind] < many, 0, 1).repeat(counts).astype(np.int32),
                tenant=tenant,
                priority=np.zeros(total, np.int32),
            ),
            tree=tree,
            agents=("main", "ultra_short"),
            tenants=tenants,
        )

    def _tree(self, names: tuple[str, ...]) -> tuple[PrefixTree, NDArray[np.int64]]:
        """The tree, and the node of every drawn turn and then of every single request.

        `names` are the ids of the drawn sessions and then of the single requests: the scopes of their blocks.
        """
        p, drawn, singles = self.p, self.drawn, self.singles
        block = p.block_size
        many = len(drawn.turns)
        groups = len(self.heads)
        own = np.flatnonzero(drawn.group < 0)
        documents, document_node, document_depth, document_of = _document_nodes(singles)
        # Nodes in order: shared heads, own heads, documents, turns, single requests.
        first_own = groups
        first_document = first_own + len(own)
        first_turn = first_document + len(document_depth)
        head_node = np.array(drawn.group)
        head_node[own] = first_own + np.arange(len(own))

        session = np.repeat(np.arange(many), drawn.turns)
        depth = drawn.input_tokens // block
        previous = np.concatenate(([0], depth[:-1]))
        head_depth = (drawn.head_tokens // block)[session]
        event = drawn.event
        plain = event == Event.PLAIN
        begins = np.where(plain, previous, np.where(event == Event.REWRITE, 0, head_depth))
        created = depth > begins
        node = first_turn + np.cumsum(created) - 1
        before = np.concatenate(([NO_NODE], node[:-1]))
        parent = np.where(plain, before, np.where(event == Event.REWRITE, NO_NODE, head_node[session]))
        new = np.where(created, depth - begins, 0)
        counted = np.cumsum(new) - new
        session_first = np.concatenate(([0], np.cumsum(drawn.turns)))[:-1]
        first_id = (
            counted - counted[session_first][session] + np.where(drawn.group[session] < 0, head_depth, 0)
        )

        single_depth = singles.input_tokens // block
        single_created = single_depth > singles.held_blocks
        first_single = first_turn + int(created.sum())
        held_node = np.where(singles.document >= 0, first_document + document_node, NO_NODE)
        single_node = np.where(single_created, first_single + np.cumsum(single_created) - 1, held_node)

        # Scopes: global, shared heads, documents, sessions, single requests.
        scope_document = 1 + groups
        scope_session = scope_document + documents
        scope_single = scope_session + many
        above_document = (
            np.concatenate(([False], document_of[1:] == document_of[:-1]))
            if len(document_of)
            else document_of
        )
        document_parent = np.where(above_document, first_document + np.arange(len(document_of)) - 1, NO_NODE)
        document_first = (
            np.where(above_document, np.concatenate(([0], document_depth[:-1])), 0)
            if len(document_of)
            else document_of
        )
        tree = PrefixTree(
            block_size=block,
            parent=np.concatenate(
                (
                    np.full(groups + len(own), NO_NODE),
                    document_parent,
                    parent[created],
                    held_node[single_created],
                )
            ).astype(np.int32),
            depth=np.concatenate(
                (
                    self.heads // block,
                    drawn.head_tokens[own] // block,
                    document_depth,
                    depth[created],
                    single_depth[single_created],
                )
            ).astype(np.int64),
            scope=np.concatenate(
                (
                    1 + np.arange(groups),
                    scope_session + own,
                    scope_document + document_of,
                    scope_session + session[created],
                    scope_single + np.flatnonzero(single_created),
                )
            ).astype(np.int32),
            first_id=np.concatenate(
                (
                    np.zeros(groups + len(own), np.int64),
                    document_first,
                    first_id[created],
                    np.zeros(int(single_created.sum()), np.int64),
                )
            ).astype(np.uint64),
            id_at=np.full(first_single + int(single_created.sum()), -1, np.int64),
            ids=np.zeros(0, np.uint64),
            scopes=(
                "",
                *(f"head {g}" for g in range(groups)),
                *(f"document {d}" for d in range(documents)),
                *names,
            ),
        )
        return tree, np.concatenate((node, single_node))


def _document_nodes(
    singles: _Singles,
) -> tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Documents cut at every length taken from them: how many documents, each request's node among the
    pieces (0 for cold ones), and each piece's end in blocks and its document."""
    warm = singles.document >= 0
    pairs = np.stack((singles.document[warm], singles.held_blocks[warm]), axis=1)
    pieces, inverse = np.unique(pairs, axis=0, return_inverse=True)
    node = np.zeros(len(singles.document), np.int64)
    node[warm] = inverse.reshape(-1)
    return int(singles.document.max(initial=-1)) + 1, node, pieces[:, 1], pieces[:, 0]


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
