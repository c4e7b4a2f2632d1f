"""How exact, punctual and lean is the load generator? Its bars, measured against the calibrated server.

    python -m benchmarks.loadgen [SCENARIO…] [--repeat 3] [--json FILE] [--peer inference-perf=PROGRAM]

The generator (with its recorder) runs on one core, the server on another. Every scenario runs --repeat
times, interleaved, and the median run counts; all runs are in the JSON. On a busy machine put it before
the others: `chrt -r 5 python -m benchmarks.loadgen`. The baselines (plain Locust, optionally a peer) run
against the same server in the same pass.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.loadgen.calibration import Calibration, Scenario, calibrated_server, measure, server_records
from harness.loadgen.job import ClosedLoop, PoissonArrivals, RecordedArrivals

CLIENT, SERVER = 0, 1


def scenario(name: str, sessions: int, arrivals: Any, **more: Any) -> Scenario:
    return Scenario(name, sessions, arrivals, client_cpu=CLIENT, server_cpu=SERVER, **more)


SCENARIOS = {
    made.name: made
    for made in (
        scenario("open-305", 305 * 20, PoissonArrivals(305.0)),
        scenario("trace-500", 500 * 15, PoissonArrivals(500.0), output_tokens=8),
        scenario("trace-1500", 1500 * 10, PoissonArrivals(1500.0), output_tokens=8),
        scenario("herd-1024", 1024, ClosedLoop(1024)),
        scenario("throughput", 2700, ClosedLoop(2700), output_tokens=200),
        scenario("calm-512", 512, ClosedLoop(512)),
        scenario("stalled-512", 512, ClosedLoop(512), stall_ms=20.0),
        scenario("memory", 1000 * 40, PoissonArrivals(1000.0), output_tokens=4, ttft_ms=20.0, itl_ms=5.0),
        scenario(
            "idle-10000",
            10_000,
            RecordedArrivals(),
            turns=2,
            think_ms=20_000.0,
            gap_ms=1.0,
            output_tokens=4,
            prompt_tokens=32,
        ),
    )
}
ENDURANCE = scenario(
    "endurance", 200 * 1800, PoissonArrivals(200.0), output_tokens=32, ttft_ms=50.0, itl_ms=10.0
)

# scenario, what, unit, bar ("<=" or ">="), figure
Figure = tuple[str, str, str, str, float, Callable[[Calibration], float]]
BARS: list[Figure] = [
    ("open-305", "TTFT error p99", "ms", "<=", 0.5, lambda c: c.first_token_error.p99_ms),
    ("open-305", "rate reached", "%", ">=", 99.5, lambda c: 100 * c.rate_s / (c.asked_rate_s or 1)),
    ("open-305", "memory at ~1,020 streams", "MiB", "<=", 200.0, lambda c: c.peak_rss_mib),
    ("open-305", "command to first request", "s", "<=", 2.0, lambda c: c.to_first_request_s),
    ("open-305", "last response to exit", "s", "<=", 0.5, lambda c: c.to_exit_s),
    ("trace-500", "lateness p99", "ms", "<=", 0.5, lambda c: c.lateness.p99_ms),
    ("trace-500", "drift, last tenth - first", "ms", "<=", 0.1, lambda c: abs(c.lateness_drift_ms)),
    ("trace-1500", "lateness p99", "ms", "<=", 1.0, lambda c: c.lateness.p99_ms),
    ("trace-1500", "drift, last tenth - first", "ms", "<=", 0.1, lambda c: abs(c.lateness_drift_ms)),
    ("herd-1024", "TTFT error p99", "ms", "<=", 10.0, lambda c: c.ttft_error.p99_ms),
    ("herd-1024", "all sent after the release", "ms", "<=", 200.0, lambda c: c.all_sent_ms),
    ("throughput", "events per second", "/s", ">=", 50_000.0, lambda c: c.events_s),
    ("throughput", "every event's error p99", "ms", "<=", 1.0, lambda c: c.event_error.p99_ms),
    ("throughput", "CPU per event", "µs", "<=", 20.0, lambda c: c.cpu_us_per_event),
    ("throughput", "merged reads", "", "", 0.0, lambda c: float(c.merged_reads)),
    ("calm-512", "TTFT error p99", "ms", "", 0.0, lambda c: c.first_token_error.p99_ms),
    ("stalled-512", "TTFT error p99, 20 ms stalls", "ms", "<=", 1.0, lambda c: c.first_token_error.p99_ms),
    ("stalled-512", "merged reads", "", "", 0.0, lambda c: float(c.merged_reads)),
    ("memory", "growth per finished request", "B", "<=", 1500.0, lambda c: c.rss_bytes_per_request),
    ("endurance", "growth over 30 minutes", "B/req", "<=", 1500.0, lambda c: c.rss_bytes_per_request),
    ("endurance", "drift, last tenth - first", "ms", "<=", 0.1, lambda c: abs(c.lateness_drift_ms)),
    ("endurance", "memory, the plan of 360,000 sessions included", "MiB", "", 0.0, lambda c: c.peak_rss_mib),
    ("idle-10000", "live sessions in one process", "", ">=", 9900.0, lambda c: float(c.live_sessions)),
    ("idle-10000", "failed requests", "", "<=", 0.0, lambda c: float(c.requests - c.ok)),
    ("idle-10000", "memory", "MiB", "", 0.0, lambda c: c.peak_rss_mib),
]


# -- the sides to compare with --------------------------------------------------------------------------


def _percentiles(values: list[float]) -> dict[str, float]:
    return {f"p{q:g}": float(np.percentile(values, q)) for q in (50, 99)}


def plain_locust(name: str, *, users: int, requests: int, rate: float | None) -> dict[str, Any]:
    """FastHttpUser.iter_lines against the same server, judged by the same truth."""
    with calibrated_server(200.0, 50.0, SERVER) as port:
        command = [sys.executable, "-m", "benchmarks.locust_plain", str(port)]
        command += ["--users", str(users), "--requests", str(requests)]
        if rate is not None:
            command += ["--rate", str(rate)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            os.sched_setaffinity(process.pid, {CLIENT})
            said, _ = process.communicate(timeout=300)
        served = server_records(port)
    result = json.loads(said)
    pairs = [(row, served[row["request_id"]]) for row in result["rows"] if row["request_id"] in served]
    pairs = [(row, truth) for row, truth in pairs if len(row["tokens_ns"]) == len(truth.sends_ns)]
    first = [abs(row["tokens_ns"][0] - truth.sends_ns[0]) / 1e6 for row, truth in pairs]
    events = [
        abs(mine - theirs) / 1e6
        for row, truth in pairs
        for mine, theirs in zip(row["tokens_ns"], truth.sends_ns, strict=True)
    ]
    sent = sorted(row["sent_ns"] for row, _ in pairs)
    span_s = (sent[-1] - sent[0]) / 1e9
    return {
        "side": "locust FastHttpUser.iter_lines",
        "scenario": name,
        "requests": len(pairs),
        "ttft_error_ms": _percentiles(first),
        "event_error_ms": _percentiles(events),
        "rate_s": (len(sent) - 1) / span_s if rate else None,
        "cpu_us_per_event": result["cpu_s"] * 1e6 / max(1, len(events)),
    }


def inference_perf(program: str, *, rate: float, seconds: int) -> dict[str, Any]:
    """The peer's own report of TTFT, against the server's 200 ms."""
    with tempfile.TemporaryDirectory() as folder, calibrated_server(200.0, 50.0, SERVER) as port:
        count = round(rate * seconds) + 1
        tokenizer = Path(folder) / "tokenizer"
        tokenizer.mkdir()
        words = {f"t{number}": number for number in range(50_000)} | {"[UNK]": 50_000}
        model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
        (tokenizer / "tokenizer.json").write_text(
            json.dumps(
                {
                    "version": "1.0",
                    "model": model,
                    "pre_tokenizer": {"type": "WhitespaceSplit"},
                    "added_tokens": [],
                }
            )
        )
        (tokenizer / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"})
        )
        config = Path(folder) / "config.yml"
        config.write_text(
            f"""
api: {{type: completion, streaming: true}}
data:
  type: random
  input_distribution: {{min: 64, max: 64, mean: 64, std_dev: 0, total_count: {count}}}
  output_distribution: {{min: 64, max: 64, mean: 64, std_dev: 0, total_count: {count}}}
load:
  type: poisson
  stages: [{{rate: {rate}, duration: {seconds}}}]
  num_workers: 1
  worker_max_concurrency: 4000
server:
  type: vllm
  model_name: m
  base_url: http://127.0.0.1:{port}
  ignore_eos: true
tokenizer: {{pretrained_model_name_or_path: {tokenizer}}}
report:
  request_lifecycle: {{summary: true, per_stage: false, per_request: true}}
storage:
  local_storage: {{path: {folder}/out}}
"""
        )
        with subprocess.Popen(
            [program, "--config_file", str(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
        ) as process:
            os.sched_setaffinity(process.pid, {CLIENT})
            said, _ = process.communicate(timeout=600)
        served = server_records(port)
        reports = list(Path(folder).rglob("*per_request*.json"))
        if not reports:
            raise SystemExit(f"{program}: no report: {said.decode()[-2000:]}")
        rows = json.loads(reports[0].read_text())
    truth = [(record.sends_ns[0] - record.received_ns) / 1e6 for record in served.values()]
    ttft = []
    for row in rows:
        times = row["info"]["response_metrics"]["output_token_times"] if row["error"] is None else []
        if times:
            ttft.append((times[0] - row["start_time"]) * 1e3)
    received = sorted(record.received_ns for record in served.values())
    return {
        "side": "inference-perf",
        "scenario": "open-305",
        "requests": len(ttft),
        "ttft_error_ms": {q: abs(v - _percentiles(truth)[q]) for q, v in _percentiles(ttft).items()},
        "rate_s": (len(received) - 1) / ((received[-1] - received[0]) / 1e9),
    }


PEERS = {"inference-perf": lambda program: [inference_perf(program, rate=305.0, seconds=20)]}


# -- the run -------------------------------------------------------------------------------------------


def run(names: list[str], repeat: int) -> dict[str, list[Calibration]]:
    results: dict[str, list[Calibration]] = {name: [] for name in names}
    for attempt in range(repeat):
        for name in names:
            folder = Path(tempfile.mkdtemp(prefix="pddbench-loadgen-"))
            try:
                results[name].append(measure({**SCENARIOS, "endurance": ENDURANCE}[name], folder))
            finally:
                shutil.rmtree(folder)
            print(f"{name} {attempt + 1}/{repeat}", file=sys.stderr, flush=True)
    return results


def table(results: dict[str, list[Calibration]]) -> list[dict[str, Any]]:
    rows = []
    for name, what, unit, sense, bar, figure in BARS:
        if not results.get(name):
            continue
        values = [figure(result) for result in results[name]]
        value = statistics.median(values)
        met = None if not sense else (value <= bar if sense == "<=" else value >= bar)
        rows.append(
            {"scenario": name, "figure": what, "unit": unit, "bar": f"{sense} {bar:g}" if sense else "",
             "median": value, "runs": values, "met": met}
        )  # fmt: skip
    return rows


def show(rows: list[dict[str, Any]], sides: list[dict[str, Any]], host: dict[str, Any]) -> None:
    print(", ".join(f"{key} {value}" for key, value in host.items()))
    for row in rows:
        verdict = {None: "", True: "met", False: "MISSED"}[row["met"]]
        runs = " ".join(f"{value:.4g}" for value in row["runs"])
        print(
            f"{row['scenario']:<12} {row['figure']:<32} {row['median']:>10.4g} {row['unit']:<4} "
            f"{row['bar']:<9} {verdict:<6} runs: {runs}"
        )
    for side in sides:
        print(json.dumps(side))


def speed() -> float:
    """ns of one turn of an empty loop: tells figures of a slow or busy machine from those of a fast one."""
    best = min(_loop() for _ in range(5))
    return best / 1e6


def _loop() -> int:
    started = time.perf_counter_ns()
    for _ in range(1_000_000):
        pass
    return time.perf_counter_ns() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}, endurance"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-locust", action="store_true", help="without the plain Locust side")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PROGRAM", help=f"{', '.join(PEERS)}"
    )
    options = parser.parse_args()
    names = options.scenarios or list(SCENARIOS)
    for name in names:
        if name not in SCENARIOS and name != "endurance":
            parser.error(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}, endurance")
    host = {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load average": round(os.getloadavg()[0], 1),
        "ns per empty loop turn": round(speed(), 1),
    }
    results = run(names, options.repeat)
    sides: list[dict[str, Any]] = []
    if not options.no_locust:
        for _ in range(options.repeat):
            if "herd-1024" in names:
                sides.append(plain_locust("herd-1024", users=1024, requests=1024, rate=None))
            if "open-305" in names:
                sides.append(plain_locust("open-305", users=1100, requests=305 * 20, rate=305.0))
    for peer in options.peer:
        name, _, program = peer.partition("=")
        sides += PEERS[name](program)
    rows = table(results)
    show(rows, sides, host)
    if options.json:
        runs = {name: [msgspec.to_builtins(result) for result in found] for name, found in results.items()}
        options.json.write_text(
            json.dumps({"host": host, "figures": rows, "sides": sides, "runs": runs}, indent=1)
        )


if __name__ == "__main__":
    main()
