"""Measures the load generator against the calibrated server: the whole path, in processes of its own.

A scenario is replayed as any run is (`python -m harness.loadgen`), then its records are joined with what
the server knows it did. Both stamp on this machine's clocks, so differences are errors of the instrument.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow.parquet as pq

from harness.loadgen.assessment import Assessment, read_assessment
from harness.loadgen.calibrated import ServedRequest
from harness.loadgen.job import Arrivals, Limits, LoadJob, PoissonArrivals, Target, shard_name, write_job
from workloads.replay import Piece, PlanHeader, ReplayPlan, ReplaySession, ReplayTurn, write_plan
from workloads.spelling import Spelling, scope_key
from workloads.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy.typing as npt

_VOCABULARY: Final = Vocabulary(256, 32_000)
_CELL: Final = "calibration"
_MS: Final = 1e6
NEW_TOKENS: Final = 3


class CalibrationError(RuntimeError):
    """The measurement itself failed."""


class Scenario(msgspec.Struct, frozen=True):
    """What to replay."""

    name: str
    sessions: int
    arrivals: Arrivals = PoissonArrivals(100.0)
    turns: int = 1
    think_ms: float = 0.0
    gap_ms: float = 0.0  # between session starts, where arrivals are as recorded
    prompt_tokens: int = 64
    output_tokens: int = 64
    ttft_ms: float = 200.0
    itl_ms: float = 50.0
    stall_ms: float = 0.0  # the generator is made to stall this long, again and again
    client_cpu: int | None = None
    server_cpu: int | None = None


class Error(msgspec.Struct, frozen=True):
    """Percentiles of a signed quantity in ms; of its magnitude where it is an error."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Calibration(msgspec.Struct, frozen=True):
    """What came out."""

    scenario: str
    requests: int
    ok: int
    events: int
    kernel_stamps: bool
    merged_reads: int
    late_merges: int
    first_token_error: Error  # |client's first token - server's first send|
    ttft_error: Error  # |client's TTFT - (server's first send - server's receipt)|
    event_error: Error  # every token
    lateness: Error
    connect: Error
    rate_s: float  # requests sent per second, over the span from the first to the last
    asked_rate_s: float | None
    send_span_ms: float
    all_sent_ms: float  # from the first intended instant to the last request's sending, connecting included
    events_s: float
    lateness_drift_ms: float  # median lateness of the last tenth minus that of the first
    cpu_us_per_event: float  # generator process, from start to end of the replay
    peak_rss_mib: float
    rss_bytes_per_request: float  # growth per finished request, over the second half of the samples
    live_sessions: int  # most at one sample
    to_first_request_s: float  # from the command
    to_exit_s: float  # from the last response
    self_valid: bool
    self_reasons: tuple[str, ...]


@contextlib.contextmanager
def calibrated_server(ttft_ms: float, itl_ms: float, cpu: int | None = None) -> Iterator[int]:
    """Port of a calibrated server that lives as long as the context."""
    command = [
        sys.executable,
        "-m",
        "harness.loadgen.calibrated",
        "--ttft-ms",
        str(ttft_ms),
        "--itl-ms",
        str(itl_ms),
    ]
    if cpu is not None:
        command += ["--cpu", str(cpu)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.strip().isdigit():
                raise CalibrationError("the calibrated server did not start")
            yield int(line)
        finally:
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()


def server_records(port: int) -> dict[str, ServedRequest]:
    """What the server did since it was last asked."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/records", timeout=60.0) as answer:
        served = msgspec.msgpack.decode(answer.read(), type=list[ServedRequest])
    return {request.request_id: request for request in served}


def synthetic_plan(
    sessions: int,
    *,
    turns: int = 1,
    prompt_tokens: int,
    output_tokens: int,
    think_ns: int = 0,
    gap_ns: int = 0,
) -> ReplayPlan:
    """Sessions of equal lengths and different tokens that start `gap_ns` apart.

    Each turn continues the one before with its live answer and NEW_TOKENS new tokens, `think_ns` after it.
    """
    spelling = Spelling(_VOCABULARY, prompt_tokens)
    key = scope_key(0, "", _CELL)
    made = []
    for number in range(sessions):
        chain: list[ReplayTurn] = []
        for turn in range(turns):
            before = chain[-1] if chain else None
            chain.append(
                ReplayTurn(
                    turn=turn,
                    after=(turn - 1,) if before else (),
                    delay_ns=think_ns if before else 0,
                    arrival_ns=None,
                    base=turn - 1 if before else None,
                    kept_tokens=before.prompt_tokens if before else 0,
                    keeps_answer=before is not None,
                    base_output_tokens=output_tokens if before else 0,
                    new_tokens=NEW_TOKENS if before else prompt_tokens,
                    output_tokens=output_tokens,
                    expected_hit_tokens=before.prompt_tokens if before else 0,
                    tenant=None,
                    priority=0,
                    skip_tokens=0,
                    pieces=(Piece(key, number * turns + turn, 1),),
                    spelling=spelling,
                )
            )
        made.append(ReplaySession(f"s{number}", number * gap_ns, tuple(chain), None))
    header = PlanHeader(
        trace=_CELL,
        trace_format="calibration",
        digest="",
        block_size=prompt_tokens,
        vocabulary=_VOCABULARY,
        seed=0,
        salt="",
        token_scale=1.0,
        time_scale=1.0,
        gap_cap_ns=None,
        sessions=sessions,
        turns=sessions * turns,
        dropped_sessions=0,
        dropped_turns=0,
        max_context_tokens=None,
        prefix_known=False,
        expected_request_hit=None,
        expected_token_hit=None,
        warnings=(),
    )
    return ReplayPlan(header, tuple(made))


def measure(scenario: Scenario, folder: Path) -> Calibration:
    """Replay `scenario`; `folder` must not hold one already."""
    if sys.platform != "linux":
        raise CalibrationError(f"the calibrated server needs Linux (epoll, timerfd), not {sys.platform}")
    plan = folder / "calibration.plan"
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(
        synthetic_plan(
            scenario.sessions,
            turns=scenario.turns,
            prompt_tokens=scenario.prompt_tokens,
            output_tokens=scenario.output_tokens,
            think_ns=round(scenario.think_ms * _MS),
            gap_ns=round(scenario.gap_ms * _MS),
        ),
        plan,
    )
    with calibrated_server(scenario.ttft_ms, scenario.itl_ms, scenario.server_cpu) as port:
        job = LoadJob(
            target=Target(f"http://127.0.0.1:{port}"),
            plan=plan,
            run_dir=folder / "run",
            cell=_CELL,
            rep=0,
            seed=1,
            arrivals=scenario.arrivals,
            limits=Limits(deadline_s=120.0),
            progress="quiet",
        )
        write_job(job, folder / "job.json")
        started_ns, ended_ns = _run(folder / "job.json", scenario)
        served = server_records(port)
    return _compare(scenario, job, served, started_ns, ended_ns)


def _run(job: Path, scenario: Scenario) -> tuple[int, int]:
    """Epoch instants of the command and of its end."""
    command = [sys.executable, "-m", "harness.loadgen", str(job)]
    started_ns = time.time_ns()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        if scenario.client_cpu is not None:
            os.sched_setaffinity(process.pid, {scenario.client_cpu})
        ended = threading.Event()
        staller = threading.Thread(target=_stall, args=(process.pid, scenario.stall_ms / 1e3, ended))
        if scenario.stall_ms:
            staller.start()
        _, said = process.communicate()
        ended_ns = time.time_ns()
        ended.set()
    if process.returncode not in {0, 3}:
        raise CalibrationError(f"{scenario.name}: the load generator failed: {said.decode()[-500:].strip()}")
    return started_ns, ended_ns


def _stall(pid: int, stall_s: float, ended: threading.Event) -> None:
    """Stop the process for `stall_s`, let it run as long, and again."""
    with contextlib.suppress(ProcessLookupError):
        while not ended.wait(stall_s):
            os.kill(pid, signal.SIGSTOP)
            try:
                ended.wait(stall_s)
            finally:
                os.kill(pid, signal.SIGCONT)


def _error(values_ns: npt.NDArray[np.float64] | list[float]) -> Error:
    if not len(values_ns):
        return Error(*[float("nan")] * 4)
    return Error(*(float(value) / _MS for value in np.percentile(values_ns, [50, 99, 99.9, 100])))


def _compare(
    scenario: Scenario, job: LoadJob, served: dict[str, ServedRequest], started_ns: int, ended_ns: int
) -> Calibration:
    where = f"cell={job.cell}/rep={job.rep}"
    rows = pq.read_table(job.run_dir / "requests" / where / f"{shard_name(0)}.parquet").to_pylist()
    samples = pq.read_table(
        job.run_dir / "instrument_samples" / where / f"{shard_name(0)}.parquet"
    ).to_pylist()
    assessment: Assessment = read_assessment(job.run_dir / "loadgen" / where / f"{shard_name(0)}.json")
    good: list[tuple[dict[str, Any], ServedRequest]] = [
        (row, served[row["request_id"]])
        for row in rows
        if row["status"] == "ok" and row["request_id"] in served
    ]
    if not good:
        first = next((row["error"] for row in rows if row["error"]), "nothing was sent")
        raise CalibrationError(f"{scenario.name}: no request succeeded: {first}")
    first = [abs(row["first_token_ns"] - server.sends_ns[0]) for row, server in good]
    span = [
        abs((row["first_token_ns"] - row["sent_ns"]) - (server.sends_ns[0] - server.received_ns))
        for row, server in good
    ]
    events = np.concatenate(
        [
            np.abs(np.array(row["token_offsets_ns"]) + row["sent_ns"] - np.array(server.sends_ns))
            for row, server in good
        ]
    )
    good.sort(key=lambda pair: pair[0]["intended_ns"])
    intended = [row["intended_ns"] for row, _ in good]
    intended_ns = intended[-1] - intended[0]
    sent = np.array([row["sent_ns"] for row, _ in good], np.int64)
    connect = np.array([row["connect_ns"] or 0 for row, _ in good], np.int64)
    late = sent - np.array(intended, np.int64) - connect
    tenth = max(1, len(late) // 10)
    span_ns = int(sent.max() - sent.min())
    last_ns = max(row["end_ns"] for row in rows)
    tokens_ns = max(row["last_token_ns"] for row, _ in good) - min(row["first_token_ns"] for row, _ in good)
    return Calibration(
        scenario=scenario.name,
        requests=len(rows),
        ok=len(good),
        events=len(events),
        kernel_stamps=assessment.kernel_stamps,
        merged_reads=assessment.merged_reads,
        late_merges=assessment.late_merges,
        first_token_error=_error(first),
        ttft_error=_error(span),
        event_error=_error(events),
        lateness=_error(late.astype(np.float64)),
        connect=_error([float(value) for value in connect if value]),
        rate_s=(len(good) - 1) / (span_ns / 1e9) if span_ns else 0.0,
        asked_rate_s=(len(good) - 1) / (intended_ns / 1e9) if intended_ns else None,
        send_span_ms=span_ns / _MS,
        all_sent_ms=(int(sent.max()) - intended[0]) / _MS,
        events_s=len(events) / max(1e-9, tokens_ns / 1e9),
        lateness_drift_ms=float(np.median(late[-tenth:]) - np.median(late[:tenth])) / _MS,
        cpu_us_per_event=assessment.cpu_s * 1e6 / max(1, assessment.events),
        peak_rss_mib=assessment.peak_rss_mib,
        rss_bytes_per_request=_growth(samples, rows),
        live_sessions=max((sample["live_sessions"] for sample in samples), default=0),
        to_first_request_s=(int(sent.min()) - started_ns) / 1e9,
        to_exit_s=(ended_ns - last_ns) / 1e9,
        self_valid=assessment.valid,
        self_reasons=assessment.reasons,
    )


def _growth(samples: list[dict[str, Any]], rows: list[dict[str, Any]]) -> float:
    """Slope of resident memory against requests finished."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return float("nan")
    ends = np.sort(np.array([row["end_ns"] for row in rows], np.int64))
    finished = np.searchsorted(ends, np.array([sample["t_ns"] for sample in half], np.int64))
    if finished[-1] == finished[0]:
        return float("nan")
    return float(np.polyfit(finished, np.array([sample["rss_bytes"] for sample in half], np.float64), 1)[0])
