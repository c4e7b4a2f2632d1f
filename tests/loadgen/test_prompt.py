from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen.prompt import ID_BYTES, MAX_ID, PromptError, encode_ids, token_count


@given(st.lists(st.integers(0, 70_000), max_size=50))
def test_encoded_ids_are_json_of_fixed_width(ids):
    encoded = encode_ids(np.array(ids, np.uint32))
    assert json.loads(b"[" + encoded[1:] + b"]") == ids
    assert token_count(encoded) == len(ids)


def test_widest_id_fits():
    assert json.loads(encode_ids([MAX_ID])[1:]) == MAX_ID


def test_a_slice_of_k_ids_is_the_first_k_ids():
    encoded = encode_ids(range(1000, 1100))
    assert json.loads(b"[" + encoded[: 3 * ID_BYTES][1:] + b"]") == [1000, 1001, 1002]


@pytest.mark.parametrize("bad", [-1, MAX_ID + 1])
def test_ids_that_do_not_fit_are_refused(bad):
    with pytest.raises(PromptError, match="token id outside"):
        encode_ids([1, bad])
