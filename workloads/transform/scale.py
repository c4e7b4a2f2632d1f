"""Scales of length and of time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workloads.errors import TraceError
from workloads.prefix_tree import PrefixTree
from workloads.trace import UNKNOWN, Tail, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scale_tokens(trace: Trace, scale: float) -> Trace:
    """Multiply every length; prompts shrink with their blocks, so hit rates stay.

    Where block_size x scale is a whole number the blocks are the same, only shorter, and every hit
    scales with them. Elsewhere each end of a run is rounded down to a token and a block is one token.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise TraceError("must be above 0", field="token_scale", value=scale)
    if scale == 1:
        return trace
    old = trace.header.block_size
    new = round(old * scale)
    exact = new >= 1 and abs(old * scale - new) < 1e-9
    ratio = (new, old) if exact else scale.as_integer_ratio()
    up = exact and trace.header.tail is Tail.PARTIAL
    inputs = _scaled(trace.turns.input_tokens, ratio, up=up).clip(1)
    if exact:
        tree, node = replace(trace.tree, block_size=new), trace.turns.node
    else:
        tree, node = _by_token(trace, ratio, inputs)
    outputs = trace.turns.output_tokens
    turns = replace(
        trace.turns,
        input_tokens=inputs,
        output_tokens=np.where(outputs > 0, _scaled(outputs, ratio, up=False).clip(1), 0),
        shared_tokens=np.minimum(_scaled(trace.turns.shared_tokens, ratio, up=False), inputs),
        node=node,
    )
    header = replace(
        trace.header,
        block_size=tree.block_size,
        tail=trace.header.tail if exact else Tail.WHOLE,
        token_scale=trace.header.token_scale * scale,
    )
    return replace(trace, header=header, turns=turns, tree=tree).warned(f"lengths scaled by {scale:g}")


def scale_time(trace: Trace, scale: float) -> Trace:
    """Multiply arrivals, waits and recorded service times; below 1 is faster."""
    if not (math.isfinite(scale) and scale > 0):
        raise TraceError("must be above 0", field="time_scale", value=scale)
    if scale == 1:
        return trace
    turns = replace(
        trace.turns,
        arrival_ns=_stretched(trace.turns.arrival_ns, scale),
        service_ns=_stretched(trace.turns.service_ns, scale),
        delay_ns=_stretched(trace.turns.delay_ns, scale),
    )
    cap = trace.header.gap_cap_ns
    header = replace(
        trace.header,
        time_scale=trace.header.time_scale * scale,
        gap_cap_ns=None if cap is None else round(cap * scale),
    )
    start = _stretched(trace.session_start_ns, scale)
    return replace(trace, header=header, turns=turns, session_start_ns=start).warned(
        f"times scaled by {scale:g}"
    )


def _scaled(tokens: NDArray[np.int64], ratio: tuple[int, int], *, up: bool) -> NDArray[np.int64]:
    numerator, denominator = ratio
    if max(numerator, denominator) < 1 << 31:
        product: NDArray[np.int64] = tokens * numerator
        whole: NDArray[np.int64] = -(-product // denominator) if up else product // denominator
        return whole
    return np.array(tokens * (numerator / denominator) + 1e-9, np.int64)


def _stretched(times: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    return np.where(times >= 0, np.round(times * scale), UNKNOWN).astype(np.int64)


def _by_token(
    trace: Trace, ratio: tuple[int, int], inputs: NDArray[np.int64]
) -> tuple[PrefixTree, NDArray[np.int32]]:
    """The tree with blocks of one token; what a prompt has beyond its last block becomes a leaf."""
    old = trace.tree
    depth = _scaled(old.depth * old.block_size, ratio, up=False)
    length = depth - np.where(old.parent >= 0, depth[old.parent], 0)
    by_scope = np.argsort(old.scope, kind="stable")
    offset = np.cumsum(length[by_scope]) - length[by_scope]
    begins = np.concatenate(([True], np.diff(old.scope[by_scope]) != 0))[: len(by_scope)]
    group = np.cumsum(begins) - 1
    first = np.empty(old.nodes, np.int64)
    first[by_scope] = offset - offset[begins][group] if old.nodes else offset
    shorter = replace(old, block_size=1, depth=depth)
    node = shorter.climb(trace.turns.node, inputs)
    short = inputs > shorter.depth_of(node)
    # A partly filled block with an id is shared with its id; without one it is the request's own.
    partial = trace.header.tail is Tail.PARTIAL
    keys = trace.turns.node[short] if partial else np.flatnonzero(short)
    pairs, which = np.unique(np.stack((keys, inputs[short])), axis=1, return_inverse=True)
    example = np.zeros(pairs.shape[1], np.int64)
    example[which.reshape(-1)] = np.flatnonzero(short)
    grown = inputs[example] - shorter.depth_of(node[example])
    end = node.copy()
    end[short] = old.nodes + which.reshape(-1)
    tree = PrefixTree(
        block_size=1,
        parent=np.concatenate((old.parent, node[example])).astype(np.int32),
        depth=np.concatenate((depth, inputs[example])),
        scope=np.concatenate((old.scope, np.full(len(example), len(old.scopes)))).astype(np.int32),
        first_id=np.concatenate((first, np.cumsum(grown) - grown)).astype(np.uint64),
        id_at=np.full(old.nodes + len(example), -1, np.int64),
        ids=np.zeros(0, np.uint64),
        scopes=(*old.scopes, f"tails {trace.header.digest[:16]}"),
    )
    return tree, end
