"""Frames: what is packed comes back, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import frame
from harness.cluster import messages as msg
from harness.policy import actions as act
from harness.policy import events as ev


@given(st.binary(max_size=200), st.binary(max_size=2000))
def test_a_frame_round_trips(head: bytes, body: bytes) -> None:
    got_head, got_body = frame.unpack(frame.pack(head, body))
    assert (got_head, bytes(got_body)) == (head, body)


@given(st.data())
def test_a_damaged_frame_is_refused(data: st.DataObject) -> None:
    whole = frame.pack(b"head", b"some body")
    at = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
    if 6 <= at < 8:  # only the two reserved bytes carry nothing
        assert bytes(frame.unpack(damaged)[1]) == b"some body"
        return
    with pytest.raises(frame.FrameError) as caught:
        frame.unpack(damaged)
    assert "\n" not in str(caught.value)


@given(st.integers(0, 100))
def test_a_cut_frame_is_refused(missing: int) -> None:
    whole = frame.pack(b"head", b"x" * 100)
    with pytest.raises(frame.FrameError):
        frame.unpack(whole[: len(whole) - 1 - missing])


def test_a_frame_of_another_version_says_both_versions() -> None:
    whole = bytearray(frame.pack(b"head"))
    whole[5] = frame.VERSION + 1
    with pytest.raises(frame.FrameError, match="protocol version 2; this side speaks 1"):
        frame.unpack(bytes(whole))


def test_parts_beyond_their_bounds_are_not_packed() -> None:
    with pytest.raises(frame.FrameError, match="at most"):
        frame.pack(b"x" * (frame.MAX_HEAD_BYTES + 1))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50))
def test_ids_round_trip(ids: list[int]) -> None:
    assert list(frame.unpack_ids(frame.pack_ids(ids))) == ids


def test_ids_of_a_broken_size_are_refused() -> None:
    with pytest.raises(frame.FrameError, match="ids take 4 each"):
        frame.unpack_ids(b"12345")


@pytest.mark.parametrize(
    "message",
    [
        msg.Hello("layout", None),
        msg.Command(act.Decode("r", 3, "main-0", 2, 10, 0), sampling=msg.Sampling(5, 1, 0.8, (2,))),
        msg.Command(act.Close("r", 4, "main-0", 2, keep=True)),
        msg.Report((ev.TokensDecoded("r", 3, 0, 2, "length"), ev.Closed("r", 4, 9)), (2, 0)),
        msg.KvSegment(7, 0, 10, 0, 1, 2000),
        msg.KvAck(7, "no room"),
    ],
    ids=lambda m: type(m).__name__,
)
def test_messages_round_trip(message: msg.Message) -> None:
    decoded, body = msg.decode(msg.encode(message, b"body"))
    assert decoded == message
    assert bytes(body) == b"body"


def test_an_unknown_message_is_refused() -> None:
    with pytest.raises(frame.FrameError, match="unreadable head"):
        msg.decode(frame.pack(b"\x81\xa4type\xa4Evil"))
