"""What a load generator process tells its recorder: length-prefixed msgpack frames over a socket pair."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_FRAME_BYTES: Final = 256 << 20
PREFIX_BYTES: Final = 4


class Opening(msgspec.Struct, frozen=True, tag="opening", array_like=True):
    """Where the rows go; the first frame."""

    run_dir: str
    cell: str
    rep: int
    shard: str
    keep_output_ids: bool
    metadata: dict[str, str]
    scrape_endpoints: tuple[str, ...]
    scrape_every_s: float


class RequestRow(msgspec.Struct, frozen=True, tag="request", array_like=True):
    """One row of `requests` but for `output_digest`, which the recorder makes of `output_ids`."""

    request_id: str
    trace_request: str
    session_id: str
    turn: int
    tenant: str | None
    phase: str
    intended_ns: int
    sent_ns: int | None
    connect_ns: int | None
    first_byte_ns: int | None
    first_token_ns: int | None
    first_output_ns: int | None
    last_token_ns: int | None
    end_ns: int
    prompt_tokens: int
    requested_tokens: int
    output_tokens: int | None
    cached_tokens: int | None
    expected_cached_tokens: int | None
    token_offsets_ns: list[int] | None
    output_ids: list[int] | None
    status: str
    error: str | None
    http_status: int | None
    clock_source: str
    merged_reads: int
    retries: int
    shard: str


class SampleRow(msgspec.Struct, frozen=True, tag="sample", array_like=True):
    """One row of `instrument_samples`."""

    t_ns: int
    shard: str
    loop_lag_ns: int
    lateness_ns: int
    cpu_share: float
    in_flight: int
    live_sessions: int
    events: int
    merged_reads: int
    rss_bytes: int


class Closing(msgspec.Struct, frozen=True, tag="closing", array_like=True):
    """The last frame: without it the recorder knows that the load generator was killed."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The recorder's first answer: its tables are open, what is sent now does not wait for imports."""


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """The recorder's last answer, before it exits."""

    requests: int
    scrapes: int
    scrape_errors: int
    error: str | None


Answer = Ready | Recorded
Frame = Opening | RequestRow | SampleRow | Closing

# Both ends run the same code on the same machine; array_like and tagged structs keep a frame small.
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_frame(frame: Frame | Answer) -> bytes:
    body = _ENCODER.encode(frame)
    return len(body).to_bytes(PREFIX_BYTES, "little") + body


class FrameSplitter:
    """Whole frames out of a byte stream; bounded by MAX_FRAME_BYTES."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start = 0
        while len(buffer) - start >= PREFIX_BYTES:
            length = int.from_bytes(buffer[start : start + PREFIX_BYTES], "little")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"frame of {length} bytes: at most {MAX_FRAME_BYTES}")
            end = start + PREFIX_BYTES + length
            if end > len(buffer):
                break
            frames.append(bytes(buffer[start + PREFIX_BYTES : end]))
            start = end
        del buffer[:start]
        return frames
