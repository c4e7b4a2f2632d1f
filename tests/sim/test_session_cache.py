"""The cache holds what a set of real prefixes would hold."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.sim.session import PlainSession, PlainTurn, common_tokens
from harness.sim.session_cache import SessionCache
from tests.sim.cells import chain, random_sessions


def spell(session: PlainSession, turn: int) -> list[object]:
    """The turn's context, one unlike token a position; the group's head is the same for all its sessions."""
    it = session.turns[turn]
    if it.base is None:
        prompt: list[object] = [(session.session_id, turn, i) for i in range(it.prompt_tokens)]
        if session.shared_prefix:
            head = min(session.shared_prefix[1], it.prompt_tokens)
            prompt[:head] = [(session.shared_prefix[0], i) for i in range(head)]
    else:
        base = spell(session, it.base)
        kept = it.kept_tokens + it.base_output_tokens
        prompt = base[:kept] + [(session.session_id, turn, i) for i in range(it.prompt_tokens - kept)]
    return prompt + [(session.session_id, turn, "answer", i) for i in range(it.output_tokens)]


def shared(a: list[object], b: list[object]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


@settings(deadline=None)  # a busy machine is no failure
@given(seed=st.integers(0, 10**6))
def test_common_tokens_is_the_common_prefix_of_the_contexts(seed: int) -> None:
    for session in random_sessions(random.Random(seed), 3):
        for a in range(len(session.turns)):
            for b in range(len(session.turns)):
                assert common_tokens(session, a, b) == shared(spell(session, a), spell(session, b))


@settings(deadline=None)  # a busy machine is no failure
@given(seed=st.integers(0, 10**6))
def test_hits_are_those_of_a_radix_tree_and_every_position_counts_once(seed: int) -> None:
    rng = random.Random(seed)
    cache = SessionCache()
    held: list[list[object]] = []
    for session in random_sessions(rng, 4):
        for turn in session.turns:
            context = spell(session, turn.turn)
            hit = cache.pin(session, turn.turn, turn.prompt_tokens - 1)
            true_hit = max((shared(context, run) for run in held), default=0)
            assert hit == min(true_hit, turn.prompt_tokens - 1)
            keep = rng.randrange(hit, len(context) + 1)
            if keep:
                cache.keep(session, turn.turn, keep)
                held.append(context[:keep])
            cache.unpin(session)
    nodes = {tuple(run[: i + 1]) for run in held for i in range(len(run))} if len(held) < 6 else None
    if nodes is not None:
        assert cache.tokens == len(nodes)


def test_the_least_recently_used_goes_first_and_pinned_sessions_stay() -> None:
    cache = SessionCache()
    sessions = [chain(name, 0, [(100, 1)]) for name in "abc"]
    for session in sessions:
        cache.pin(session, 0, 99)
        cache.keep(session, 0, 100)
        cache.unpin(session)
    cache.pin(sessions[0], 0, 99)
    assert cache.evict(150) == [("b", 0), ("c", 50)]
    assert cache.tokens == 150
    cache.unpin(sessions[0])
    assert cache.evict(1000) == [("c", 0), ("a", 0)]
    assert cache.tokens == 0


def test_a_branch_that_goes_leaves_the_trunk_to_its_sibling() -> None:
    turns = (
        PlainTurn(0, 100, 10),
        PlainTurn(1, 130, 5, 0, 100, True, 10, 0, (0,)),
        PlainTurn(2, 150, 5, 0, 100, True, 10, 0, (0,)),
    )
    session = PlainSession("s", 0, turns)
    cache = SessionCache()
    for turn in turns:
        cache.pin(session, turn.turn, turn.prompt_tokens - 1)
        cache.keep(session, turn.turn, turn.prompt_tokens + turn.output_tokens)
        cache.unpin(session)
    assert cache.tokens == 135 + 45
    assert cache.evict(25) == [("s", 155)]
    assert cache.tokens == 155
