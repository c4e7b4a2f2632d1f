"""Token ids from block ids: the same for the same, different for different, never special."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.errors import TraceError
from workloads.formats import open_trace
from workloads.replay import make_plan
from workloads.spelling import Spelling, mix, scope_key, word
from workloads.vocabulary import Vocabulary
from workloads.words import WordSpeller

vocabularies = st.builds(
    lambda first, size, special: Vocabulary(
        first, first + size, tuple(first + s % size for s in special[: size - 2])
    ),
    st.integers(0, 1000),
    st.integers(4, 200_000),
    st.lists(st.integers(0, 200_000), max_size=5),
).filter(lambda v: v.size >= 2)


def spelled(vocabulary, block_size, ids, key=7):
    tokens = Spelling(vocabulary, block_size).tokens(word(key, np.array(ids, np.uint64)))
    return tokens.reshape(len(ids), block_size)


@given(vocabularies, st.integers(1, 80), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_tokens_are_normal_ids(vocabulary, block_size, ids):
    tokens = spelled(vocabulary, block_size, ids)
    assert tokens.dtype == np.uint32
    assert (tokens >= vocabulary.first_normal_id).all()
    assert (tokens < vocabulary.vocab_size).all()
    assert not np.isin(tokens, vocabulary.special_ids).any()


@given(
    vocabularies,
    st.integers(0, 20),
    st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=20, unique=True),
)
def test_different_ids_are_different_blocks_where_a_block_has_room(vocabulary, spare, ids):
    tokens = spelled(vocabulary, vocabulary.digits + spare, ids)
    assert len({row.tobytes() for row in tokens}) == len(ids)


@given(vocabularies, st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_the_same_id_is_always_the_same_tokens(vocabulary, block_size, number):
    one, other = (spelled(vocabulary, block_size, [number]) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(spelled(vocabulary, block_size, [3, number])[1], one[0])


def test_every_token_of_a_block_looks_random():
    vocabulary = Vocabulary(10, 1010)
    tokens = spelled(vocabulary, 16, list(range(20_000)))
    for position in range(16):
        counts = np.bincount(tokens[:, position] - 10, minlength=1000)
        # Poisson counts of mean 20: chi-square / degrees of freedom is 1 within a few percent.
        assert 0.8 < ((counts - 20) ** 2 / 20).mean() < 1.2, position


def test_the_mixer_is_a_bijection_on_what_it_is_given():
    words = mix(np.arange(1 << 16, dtype=np.uint64))
    assert len(np.unique(words)) == 1 << 16


def test_seed_salt_and_scope_each_change_the_key():
    keys = {scope_key(seed, salt, scope) for seed in (0, 1) for salt in ("", "rep1") for scope in ("", "a")}
    assert len(keys) == 8


def test_a_vocabulary_that_leaves_no_choice_is_refused():
    with pytest.raises(TraceError, match="two normal ids"):
        Vocabulary(5, 8, (5, 7))
    with pytest.raises(TraceError, match="first_normal_id"):
        Vocabulary(8, 8)


def test_words_are_texts_of_exact_length():
    speller = WordSpeller()
    plan = make_plan(
        open_trace("preset:small-engine", seed=1, sessions=2), vocabulary=speller.vocabulary, seed=1
    )
    turn = plan.sessions[0].turns[0]
    text = speller.text(turn.new_ids())
    assert len(text.split()) == turn.new_tokens
    assert text.startswith(" ")


def test_words_that_cost_more_are_left_out_and_texts_are_counted_again():
    def count(text: str) -> int:
        return sum(2 if w == " summer" else 1 for w in re.findall(r" \w+", text))

    speller = WordSpeller(["the", "summer", "river"], count)
    assert speller.words == ("the", "river")
    assert count(speller.text(np.array([0, 1, 1], np.uint32))) == 3

    def merging(text: str) -> int:
        return len(re.findall(r" \w+", text.replace(" river river", " riverriver")))

    with pytest.raises(TraceError, match="counts 1 tokens"):
        WordSpeller(["the", "river"], merging).text(np.array([1, 1], np.uint32))
