"""The recorder: a process that puts a load generator's rows on disk and scrapes the target's metrics.

Apart from the load generator, and at the lowest priority, so that writing Parquet or parsing a page
of metrics cannot make a request late: on a single core it runs in the gaps. Ends when the load
generator says so, or when it is gone (then the shards stay as they are, readable, unfinished).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import socket
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.loadgen.frames import (
    Closing,
    Frame,
    FrameSplitter,
    Opening,
    Ready,
    Recorded,
    RequestRow,
    SampleRow,
    encode_frame,
)
from reports.errors import ReportError
from reports.schema import INSTRUMENT_SAMPLES, REQUESTS, SERVER_METRICS
from reports.writer import TableWriter

if TYPE_CHECKING:
    from harness.loadgen.scrape import Scraper

_TICK_S: Final = 0.5
_READ_BYTES: Final = 1 << 20
_FLUSH_ROWS: Final = 500
_FLUSH_S: Final = 1.0
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


def output_digest(ids: list[int]) -> str:
    """16 hex digits: equal for equal token ids (BLAKE2b of the ids as little-endian int32)."""
    data = array("i", ids)
    if sys.byteorder != "little":
        data.byteswap()
    return hashlib.blake2b(data.tobytes(), digest_size=8).hexdigest()


def request_row(row: RequestRow, *, keep_output_ids: bool) -> dict[str, Any]:
    """The row as the schema has it."""
    columns = msgspec.structs.asdict(row)
    columns["output_digest"] = None if row.output_ids is None else output_digest(row.output_ids)
    if not keep_output_ids:
        columns["output_ids"] = None
    return columns


class Recorder:
    """Writes the tables of one shard."""

    def __init__(self, opening: Opening) -> None:
        def table(schema: Any) -> TableWriter:
            return TableWriter(
                Path(opening.run_dir),
                schema,
                cell=opening.cell,
                rep=opening.rep,
                shard=opening.shard,
                metadata=opening.metadata,
                flush_rows=_FLUSH_ROWS,
                flush_s=_FLUSH_S,
            )

        self._keep_output_ids: Final = opening.keep_output_ids
        self._requests: Final = table(REQUESTS)
        self._samples: Final = table(INSTRUMENT_SAMPLES)
        self._scraper: Scraper | None = None
        if opening.scrape_endpoints:
            from harness.loadgen.scrape import Scraper  # noqa: PLC0415 - imported only by runs that scrape

            offset_ns = int(opening.metadata["clock_offset_ns"])
            self._scraper = Scraper(
                opening.scrape_endpoints, opening.scrape_every_s, offset_ns, table(SERVER_METRICS)
            )
            self._scraper.start()
        self.rows = 0

    def take(self, frame: RequestRow | SampleRow) -> None:
        if isinstance(frame, RequestRow):
            self._requests.write(request_row(frame, keep_output_ids=self._keep_output_ids))
            self.rows += 1
        else:
            self._samples.write(msgspec.structs.asdict(frame))

    def tick(self) -> None:
        self._requests.tick()
        self._samples.tick()

    def close(self, *, finish: bool) -> Recorded:
        if self._scraper is not None:
            self._scraper.close(finish=finish)
        self._requests.close(finish=finish)
        self._samples.close(finish=finish)
        scrapes, errors = (self._scraper.scrapes, self._scraper.errors) if self._scraper else (0, 0)
        return Recorded(self.rows, scrapes, errors, None)


def serve(pipe: socket.socket) -> Recorded:
    """Record what comes until Closing, or until the other end is gone."""
    splitter = FrameSplitter()
    recorder: Recorder | None = None
    while True:
        ready, _, _ = select.select([pipe], [], [], _TICK_S)
        data = pipe.recv(_READ_BYTES) if ready else None
        if data == b"":
            return recorder.close(finish=False) if recorder else Recorded(0, 0, 0, None)
        for raw in splitter.feed(data or b""):
            match _DECODER.decode(raw):
                case Opening() as opening:
                    recorder = Recorder(opening)
                    pipe.sendall(encode_frame(Ready()))
                    _step_back()
                case Closing():
                    assert recorder is not None
                    return recorder.close(finish=True)
                case row:
                    assert recorder is not None
                    recorder.take(row)
        if recorder is not None:
            recorder.tick()


def _step_back() -> None:
    """From now on only the gaps: a load generator under a real-time policy must not pass that on either."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    # Linux shares the CPU among sessions first; this one is the recorder's own. Not the lowest: what waits to
    # be written on a busy machine waits in memory.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("10", encoding="ascii")


def main() -> int:
    """`python -m harness.loadgen.recorder FD`."""
    # Ctrl-C goes to the whole process group; the load generator drains and then says Closing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as pipe:
        try:
            recorded = serve(pipe)
        except ReportError as error:
            recorded = Recorded(0, 0, 0, str(error))
        with contextlib.suppress(OSError):
            pipe.settimeout(5.0)
            pipe.sendall(encode_frame(recorded))
    return 1 if recorded.error else 0


if __name__ == "__main__":
    sys.exit(main())
