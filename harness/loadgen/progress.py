"""Lines on stdout that tell the experiment runner (or a person) how the run goes; one JSON object a line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from harness.loadgen.tally import Tally

_MS: Final = 1_000_000


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The schedule's zero, epoch ns; the first request may be due then."""

    t0_ns: int
    shards: int


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """The run so far. Quantiles are of the whole run until now, from histograms (± 1.6 %)."""

    elapsed_s: float
    state: Literal["running", "draining"]
    planned_sessions: int
    started_sessions: int
    live_sessions: int
    planned_requests: int
    in_flight: int
    done: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    output_tokens_s: float  # since the line before
    lateness_p99_ms: float | None
    errors: dict[str, int]
    eta_s: float | None
    workers: int
    lost_workers: int


class Warned(msgspec.Struct, frozen=True, tag="warning"):
    """Something the user should know and that does not end the run."""

    message: str


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The records are on disk."""

    assessment: str  # path
    valid: bool
    reasons: tuple[str, ...]
    requests: dict[str, int]
    interrupted: bool


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The run itself failed; what was recorded before stays."""

    message: str


Line = Started | Progress | Warned | Finished | Failed
_DECODER: Final = msgspec.json.Decoder(Line)


def decode_line(line: bytes | str) -> Line:
    return _DECODER.decode(line)


class ProgressMeter:
    """Makes Progress lines out of a tally that grows."""

    def __init__(self, started_ns: int, limit_s: float | None) -> None:
        self._started_ns: Final = started_ns
        self._limit_s: Final = limit_s
        self._last = (started_ns, 0)

    def read(self, tally: Tally, now_ns: int, *, draining: bool, workers: int = 1, lost: int = 0) -> Progress:
        elapsed_s = (now_ns - self._started_ns) / 1e9
        last_ns, last_tokens = self._last
        self._last = (now_ns, tally.output_tokens)
        rate = (tally.output_tokens - last_tokens) / max(1e-3, (now_ns - last_ns) / 1e9)
        eta_s: float | None = None
        if tally.done and elapsed_s > 0:
            eta_s = max(0.0, elapsed_s * (tally.planned_requests - tally.done) / tally.done)
        if self._limit_s is not None:
            left_s = max(0.0, self._limit_s - elapsed_s)
            eta_s = left_s if eta_s is None else min(eta_s, left_s)

        def ms(value: int | None) -> float | None:
            return None if value is None else round(value / _MS, 3)

        return Progress(
            elapsed_s=round(elapsed_s, 3),
            state="draining" if draining else "running",
            planned_sessions=tally.planned_sessions,
            started_sessions=tally.started_sessions,
            live_sessions=tally.live_sessions,
            planned_requests=tally.planned_requests,
            in_flight=tally.in_flight,
            done=tally.done,
            ttft_p50_ms=ms(tally.ttft.quantile(0.5)),
            ttft_p99_ms=ms(tally.ttft.quantile(0.99)),
            output_tokens_s=round(rate, 1),
            lateness_p99_ms=ms(tally.lateness.quantile(0.99)),
            errors=dict(tally.errors),
            eta_s=None if eta_s is None else round(eta_s, 1),
            workers=workers,
            lost_workers=lost,
        )


def progress_text(progress: Progress) -> str:
    """One line for a terminal."""

    def ms(value: float | None) -> str:
        return "–" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"  # noqa: RUF001

    parts = [
        f"{progress.elapsed_s:5.0f} s",
        f"sessions {progress.live_sessions} live, {progress.started_sessions}/{progress.planned_sessions}",
        f"{progress.in_flight} in flight, {progress.done}/{progress.planned_requests} done",
        f"TTFT p50/p99 {ms(progress.ttft_p50_ms)}/{ms(progress.ttft_p99_ms)} ms",
        f"{progress.output_tokens_s:,.0f} tok/s",
        f"late p99 {ms(progress.lateness_p99_ms)} ms",
    ]
    if progress.errors:
        parts.append("errors " + ", ".join(f"{kind}: {count}" for kind, count in progress.errors.items()))
    if progress.lost_workers:
        parts.append(f"{progress.lost_workers} workers lost")
    if progress.state == "draining":
        parts.append("draining (Ctrl-C again stops)")
    elif progress.eta_s is not None:
        parts.append(f"ETA {progress.eta_s:.0f} s")
    return " · ".join(parts)


class Announcer:
    """Writes lines in the style the job asks for; never fails the run when nobody reads them."""

    def __init__(self, style: Literal["json", "live", "quiet"]) -> None:
        self._style: Final = style
        self._terminal: Final = style == "live" and sys.stderr.isatty()

    def say(self, line: Line) -> None:
        try:
            if self._style == "json":
                sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
                sys.stdout.buffer.flush()
            elif self._style == "live":
                self._show(line)
            elif isinstance(line, Warned | Failed):
                self._write(line.message + "\n")
        except (BrokenPipeError, BlockingIOError):
            return

    def _show(self, line: Line) -> None:
        fresh = "\n" if self._terminal else ""  # the progress line stands there unended
        match line:
            case Progress():
                if self._terminal:
                    self._write("\r\x1b[K" + progress_text(line))
            case Warned() | Failed():
                self._write(f"{fresh}{line.message}\n")
            case Finished():
                verdict = "valid" if line.valid else "INVALID: " + "; ".join(line.reasons)
                counts = ", ".join(f"{count} {status}" for status, count in line.requests.items())
                self._write(f"{fresh}{counts} · instrument {verdict}\n")
            case Started():
                return

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
