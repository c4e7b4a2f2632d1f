from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen import sse
from harness.loadgen.sse import SseError, SseSplitter


def split(*chunks: bytes) -> list[bytes]:
    splitter = SseSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


def reference(stream: bytes) -> list[bytes]:
    """The specification read slowly: whole stream, line by line."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events, data = [], []
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data:
                events.append(b"\n".join(data))
            data = []
        elif line == b"data":
            data.append(b"")
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    return events


LINES = st.sampled_from(
    [
        b'data: {"a":1}',
        b"data:x",
        b"data",
        b"data: ",
        b"data:  two blanks",
        b"data: a:b",
        b"dataset: no",
        b": ping",
        b"event: error",
        b"id: 7",
        b"retry: 10",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=20), st.booleans(), st.data())
def test_any_split_gives_the_events_of_the_whole(lines, mark, data):
    stream = (b"\xef\xbb\xbf" if mark else b"") + b"".join(line + end for line, end in lines)
    # A CR at the very end may or may not be half a CRLF; the specification lets it end the line either way.
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(*pieces) == reference(stream)


def test_one_event_per_chunk_takes_the_short_way_and_stays_in_step():
    assert split(b"data: 1\n\n", b"data: 2\n\ndata: 3", b"\n\n", b"data: 4\n\n") == [b"1", b"2", b"3", b"4"]


def test_crlf_cut_between_its_two_bytes_is_one_line_end():
    assert split(b"data: 1\r", b"\n\r", b"\ndata: 2\n\n") == [b"1", b"2"]


def test_multi_line_data_is_joined_by_line_feeds():
    assert split(b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_comments_and_other_fields_are_no_events():
    assert split(b": keep-alive\n\n", b"event: ping\n\n", b"id: 3\nretry: 5\n\n") == []


def test_a_stream_cut_inside_an_event_says_so():
    splitter = SseSplitter()
    splitter.feed(b"data: 1\n\n")
    assert not splitter.unfinished
    splitter.feed(b"data: 2\n")
    assert splitter.unfinished


def test_an_endless_event_is_refused(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    splitter = SseSplitter()
    for _ in range(99):
        splitter.feed(b"data: 0123456789\n")
    with pytest.raises(SseError, match="1000 bytes"):
        splitter.feed(b"data: 0123456789\ndata: 0123456789\n")
