from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen import frames
from harness.loadgen.frames import FrameSplitter, Recorded, encode_frame
from harness.loadgen.recorder import output_digest


@given(st.lists(st.integers(0, 10**6), max_size=8), st.data())
def test_frames_come_out_whole_however_they_were_cut(numbers, data):
    stream = b"".join(encode_frame(Recorded(number, 0, 0, None)) for number in numbers)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = FrameSplitter()
    found = [
        frame
        for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for frame in splitter.feed(stream[a:b])
    ]
    assert found == [encode_frame(Recorded(number, 0, 0, None))[frames.PREFIX_BYTES :] for number in numbers]


def test_a_frame_beyond_the_bound_is_refused():
    with pytest.raises(ValueError, match="at most"):
        FrameSplitter().feed(b"\xff\xff\xff\xff")


def test_equal_ids_have_equal_digests():
    assert output_digest([1, 2, 3]) == output_digest([1, 2, 3])
    assert output_digest([1, 2, 3]) != output_digest([1, 3, 2])
    assert len(output_digest([])) == 16
