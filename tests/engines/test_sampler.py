"""Keyed sampling: by seed and index only, and distributed as the softmax says."""

import numpy as np
import pytest

from adapters.engines.llamacpp.sampler import sample, uniform
from harness.engine import Decode


def test_uniform_is_keyed_and_uniform():
    values = np.array([uniform(seed, index) for seed in range(50) for index in range(200)])
    assert ((values >= 0) & (values < 1)).all()
    assert len(np.unique(values)) == len(values)
    histogram, _ = np.histogram(values, 20, (0, 1))
    # 20 bins of 500 on average; the standard deviation is 22.
    assert abs(histogram - 500).max() < 110


def test_any_integer_is_a_seed():
    assert uniform(-1, 0) == uniform(2**64 - 1, 0)
    assert uniform(-1, 0) != uniform(1, 0)


def test_greedy_is_the_first_maximum_with_its_margin():
    logits = np.array([0.5, 2.0, -1.0, 2.0, 1.25], np.float32)
    drawn = sample(logits, Decode(1), 0)
    assert (drawn.token, drawn.margin) == (1, 0.0)
    logits[3] = 1.5
    assert sample(logits, Decode(1), 0).margin == 0.5


def test_warm_ids_follow_the_softmax():
    logits = np.array([1.0, 0.0, 2.0, -1.0], np.float32)
    temperature = 0.8
    draws = [sample(logits, Decode(1, seed=5, temperature=temperature), i).token for i in range(8000)]
    expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    assert np.bincount(draws, minlength=4) / 8000 == pytest.approx(expected, abs=0.02)


def test_very_low_logits_are_never_drawn_and_do_not_overflow():
    logits = np.full(100, -1e30, np.float32)
    logits[42] = 1e30
    assert {sample(logits, Decode(1, temperature=0.1), i).token for i in range(50)} == {42}
