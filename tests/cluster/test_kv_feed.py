"""Segments of a transfer: exported between steps, or streamed from within them, each position once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from harness.cluster.kv_feed import KvFeed
from harness.cluster.progress import CLOSED, ProgressBoard
from harness.engine import KvPiece
from harness.policy import actions as act
from harness.policy.roles import TransferPurpose

SEQ = 1


class FakeEngine:
    """Blobs name their range. Streams if it has `follow_kv`."""

    def __init__(self, block_tokens=1):
        self.info = SimpleNamespace(block_tokens=block_tokens)
        self.exports = []

    def export_kv(self, seq, p0, p1):
        self.exports.append((p0, p1))
        return f"{p0}-{p1};".encode()


class StreamingEngine(FakeEngine):
    sink = None

    def follow_kv(self, seq, sink):
        self.sink = sink
        return 0

    def unfollow_kv(self, seq, sink):
        self.sink = None

    def compute(self, p0, p1, parts=2):
        blob = f"{p0}-{p1};".encode()
        half = len(blob) // parts
        for part in range(parts):
            data = blob[part * half :] if part == parts - 1 else blob[part * half : (part + 1) * half]
            yield KvPiece(SEQ, p0, p1, part, parts, len(blob), data)


class FakeThread:
    def __init__(self, engine):
        self.engine = engine

    async def call(self, job):
        return job()

    def post(self, job):
        job()


def feed(engine, p0, p1, *, held, follow=True, segment_tokens=100):
    board = ProgressBoard()
    board.update({SEQ: held})
    action = act.Transfer("r", 9, TransferPurpose.RELAY, "p", SEQ, "d", 2, p0, p1, follow)
    made = KvFeed(FakeThread(engine), board, action, segment_tokens=segment_tokens, stall_s=0.5)
    return made, board


async def ranges(made, p0, p1):
    out, position = [], p0
    async with made:
        while position < p1:
            segment = await made.next(position)
            assert segment.p0 == position
            assert await segment.piece(0, segment.blob_bytes, 0.5) == f"{segment.p0}-{segment.p1};".encode()
            out.append((segment.p0, segment.p1))
            position = segment.p1
    return out


def run(make, p0, p1, **more):
    async def main():
        engine = make()
        made, _ = feed(engine, p0, p1, **more)
        return await ranges(made, p0, p1)

    return asyncio.run(main())


def test_what_is_held_is_exported_in_segments():
    assert run(FakeEngine, 10, 250, held=300) == [(10, 110), (110, 210), (210, 250)]


def test_segments_end_at_blocks():
    assert run(lambda: FakeEngine(32), 10, 250, held=300) == [(10, 96), (96, 192), (192, 250)]


def test_a_segment_smaller_than_a_block_is_a_block():
    assert run(lambda: FakeEngine(32), 0, 70, held=70, segment_tokens=5) == [(0, 32), (32, 64), (64, 70)]


def test_streamed_segments_are_taken_as_they_begin():
    async def main():
        engine = StreamingEngine()
        made, _ = feed(engine, 0, 200, held=0)
        async with made:
            first, second = engine.compute(0, 120)
            engine.sink(first)
            segment = await made.next(0)
            assert (segment.p0, segment.p1) == (0, 120)
            # The second layer is not computed yet: its bytes are waited for, and no longer than allowed.
            assert await segment.piece(0, 2, 0.5)
            with pytest.raises(TimeoutError):
                await segment.piece(2, segment.blob_bytes, 0.01)
            engine.sink(second)
            assert await segment.piece(0, segment.blob_bytes, 0.5) == b"0-120;"
            for piece in engine.compute(120, 200):
                engine.sink(piece)
            assert (await made.next(120)).p1 == 200
        assert engine.exports == []
        assert engine.sink is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("p0", "computed", "expected"),
    [
        (0, [(60, 130), (130, 200)], [(0, 60), (60, 130), (130, 200)]),  # begun before it was followed
        (70, [(0, 130), (130, 200)], [(70, 130), (130, 200)]),  # the receiver has a part of it
        (0, [(0, 130), (130, 220)], [(0, 130), (130, 200)]),  # more is computed than is wanted
        (0, [(0, 50), (90, 200)], [(0, 50), (50, 90), (90, 200)]),  # found in the cache in between
        (
            0,
            [(0, 50), (50, 90), (90, 150), (150, 200)],
            [(0, 50), (50, 90), (90, 190), (190, 200)],
        ),  # too fast
    ],
)
def test_every_position_goes_once_whatever_is_streamed(p0, computed, expected):
    async def main():
        engine = StreamingEngine()
        made, board = feed(engine, p0, 200, held=0)
        async with made:
            for at in computed:
                for piece in engine.compute(*at):
                    engine.sink(piece)
            await asyncio.sleep(0)
            board.update({SEQ: 250})
            return await ranges_of(made, p0, 200)

    async def ranges_of(made, p0, p1):
        out, position = [], p0
        while position < p1:
            segment = await made.next(position)
            out.append((segment.p0, segment.p1))
            position = segment.p1
        return out

    assert asyncio.run(main()) == expected


def test_a_prefill_that_stops_is_noticed():
    async def main():
        made, board = feed(StreamingEngine(), 0, 200, held=0)
        async with made:
            with pytest.raises(TimeoutError):
                await made.next(0)
            waiting = asyncio.ensure_future(made.next(0))
            await asyncio.sleep(0)
            board.update({SEQ: CLOSED})
            with pytest.raises(KeyError):
                await waiting

    asyncio.run(main())
