"""The prefix tree says of any prompts what a plain comparison of their ids says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.prompts import PLACE, infinite, paths, prompts, trace_of
from workloads.builder import TraceBuilder
from workloads.chains import chains_of, tree_of
from workloads.prefix_tree import NEVER
from workloads.trace import Tail


def common(a: list[int], b: list[int]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


@given(prompts)
def test_every_prompt_keeps_its_ids(ids):
    assert paths(trace_of(ids)) == [[("", i) for i in blocks] for blocks in ids]


@given(prompts)
def test_seen_depth_is_the_longest_prefix_among_earlier_prompts(ids):
    trace = trace_of(ids)
    assert trace.tree.seen_depth(trace.turns.node, np.arange(len(ids))).tolist() == infinite(ids)


@given(prompts, st.randoms(use_true_random=False))
def test_seen_depth_follows_the_order_of_ranks_not_of_rows(ids, random):
    trace = trace_of(ids)
    rank = list(range(len(ids)))
    random.shuffle(rank)
    in_order = [blocks for _, blocks in sorted(zip(rank, ids, strict=True))]
    expected = infinite(in_order)
    assert trace.tree.seen_depth(trace.turns.node, np.array(rank)).tolist() == [expected[r] for r in rank]


@given(prompts)
def test_common_depth_is_the_common_prefix(ids):
    trace = trace_of(ids)
    node = trace.turns.node
    for i, left in enumerate(ids):
        depth = trace.tree.common_depth(np.full(len(ids), node[i]), node)
        assert depth.tolist() == [common(left, right) for right in ids]


@given(prompts, st.integers(0, 9))
def test_climb_stops_at_the_deepest_node_that_is_not_deeper(ids, depth):
    tree = trace_of(ids).tree
    node = np.arange(tree.nodes)
    up = tree.climb(node, np.full(tree.nodes, depth))
    for n, u in zip(node, up, strict=True):
        on_path = [p for p in tree.path(int(n)) if tree.depth[p] <= depth]
        assert u == (on_path[-1] if on_path else -1)


@given(prompts)
def test_first_touch_is_the_first_prompt_through_a_node(ids):
    trace = trace_of(ids)
    tree = trace.tree
    first = tree.first_touch(trace.turns.node, np.arange(len(ids)))
    for n in range(tree.nodes):
        through = [r for r, end in enumerate(trace.turns.node) if n in tree.path(int(end))]
        assert first[n] == (min(through) if through else NEVER)


@given(prompts)
def test_a_parent_stands_before_its_children(ids):
    tree = trace_of(ids).tree
    assert (tree.parent < np.arange(tree.nodes)).all()
    assert (tree.depth > tree.start()).all()


@given(prompts)
def test_chains_tell_the_same_tree(ids):
    trace = trace_of(ids)
    chains = chains_of(trace.tree, trace.turns.node)
    tree, node = tree_of(chains, trace.tree.block_size, trace.tree.scopes)
    again = [[int(i) for i in tree.path_ids(int(n))] for n in node]
    assert again == ids
    np.testing.assert_array_equal(tree.seen_depth(node, np.arange(len(ids))), infinite(ids))
    assert (tree.parent < np.arange(tree.nodes)).all()


@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 6)), min_size=1, max_size=20)
)
def test_extend_keeps_what_it_is_told_and_adds_ids_of_its_own(steps):
    builder = TraceBuilder(block_size=1, tail=Tail.WHOLE)
    scope = builder.tree.scope("s")
    nodes, model = [-1], [[]]
    used = 0
    for which, wanted, fresh in steps:
        source = which % len(nodes)
        kept = min(wanted, len(model[source]))
        nodes.append(builder.tree.extend(scope, nodes[source], kept=kept, fresh=fresh, owner=len(nodes)))
        model.append(model[source][:kept] + list(range(used, used + fresh)))
        used += fresh
    tree, place = builder.tree.freeze()
    for node, ids in zip(nodes, model, strict=True):
        assert [int(i) for i in tree.path_ids(int(place[node]) if node >= 0 else -1)] == ids


def test_equal_ids_in_two_scopes_are_two_blocks():
    builder = TraceBuilder(block_size=1, tail=Tail.WHOLE)
    for name in ("a", "b"):
        node = builder.tree.insert(builder.tree.scope(name), np.array([1, 2, 3], np.uint64), 0)
        session = builder.open_session(name, 0, PLACE)
        builder.add_turn(
            session, PLACE, input_tokens=3, output_tokens=1, node=node, after=[], base=None, delay_ns=0
        )
    trace = builder.build(name="t", source_format="t", digest="")
    assert trace.tree.seen_depth(trace.turns.node, np.arange(2)).tolist() == [0, 0]


def test_ids_of_64_bits_are_kept_whole():
    big = [2**64 - 1, 2**63, 2**63 + 1, 5]
    assert paths(trace_of([big, [*big, 2**32]])) == [[("", i) for i in big], [("", i) for i in [*big, 2**32]]]
