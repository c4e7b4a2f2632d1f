"""The load generator as a process: records, signals, death, workers. Each test starts real processes."""

from __future__ import annotations

import signal
import socket
import sys
import time
import urllib.request

import msgspec
import psutil
import pyarrow.parquet as pq
import pytest

from harness.loadgen.assessment import read_assessment
from harness.loadgen.calibration import calibrated_server, server_records
from harness.loadgen.job import Bounds, Limits, MasterOptions, Scrape, Web
from harness.loadgen.progress import Finished, Progress, Started, Warned
from tests.loadgen.processes import Launcher, job_in, next_line, recorded, sessions_plan
from tests.loadgen.scripted_server import serving, tokens_answer

# The machine that runs the tests may be busy: how punctual the instrument was is not what they are about.
LENIENT = Bounds(
    lateness_p99_ms=1e5, loop_lag_p99_ms=1e5, cpu_share_p90=100.0, clock_error_ms=1e3, merged_share=1.0
)


@pytest.fixture
def launcher():
    made = Launcher()
    yield made
    made.close()


@pytest.fixture(scope="module")
def port():
    with calibrated_server(5.0, 1.0) as number:
        yield number


def test_a_run_leaves_records_samples_and_its_own_judgement(launcher, tmp_path, port):
    process = launcher.start(
        job_in(tmp_path, port, sessions_plan(20, 3), bounds=LENIENT, keep_output_ids=True)
    )
    assert next_line(process, Started).shards == 1
    finished = next_line(process, Finished)
    assert process.wait(20) == 0
    assert finished.requests == {"ok": 60}
    rows, done = recorded(tmp_path)
    assert done == [True]
    assert rows.num_rows == 60
    served = server_records(port)
    for row in rows.to_pylist():
        assert len(row["output_ids"]) == row["output_tokens"] == 8
        assert len(row["output_digest"]) == 16
        truth = served[row["request_id"]]
        # Whenever this process was scheduled, the kernel's stamps are within a few ms of the server's.
        if row["clock_source"] == "kernel":
            assert 0 <= row["first_token_ns"] - truth.sends_ns[0] < 50_000_000
        assert 0 <= truth.received_ns - row["sent_ns"] < 5_000_000_000
    assessment = read_assessment(tmp_path / "run/loadgen/cell=c/rep=0/loadgen-0.json")
    assert assessment.valid
    assert assessment.recorded == 60
    assert assessment.seed == 1
    assert list((tmp_path / "run/instrument_samples/cell=c/rep=0").glob("*.parquet"))


def test_an_instrument_beyond_its_bounds_marks_the_run_invalid(launcher, tmp_path, port):
    impossible = msgspec.structs.replace(LENIENT, lateness_p99_ms=1e-6)
    process = launcher.start(job_in(tmp_path, port, sessions_plan(5, 1), bounds=impossible))
    finished = next_line(process, Finished)
    assert process.wait(20) == 3
    assert not finished.valid
    assert "lateness p99" in finished.reasons[0]


def test_the_first_interrupt_drains_and_closes_the_records(launcher, tmp_path, port):
    plan = sessions_plan(400, 2, output_tokens=30, gap_ns=20_000_000)
    process = launcher.start(job_in(tmp_path, port, plan, bounds=LENIENT))
    while next_line(process, Progress).done < 10:
        pass
    process.send_signal(signal.SIGINT)
    finished = next_line(process, Finished)
    assert process.wait(20) == 130
    assert finished.interrupted
    rows, done = recorded(tmp_path)
    assert done == [True]
    assert set(rows["status"].to_pylist()) == {"ok"}
    assessment = read_assessment(tmp_path / "run/loadgen/cell=c/rep=0/loadgen-0.json")
    assert rows.num_rows + assessment.not_sent == 800


def test_the_second_interrupt_stops_at_once(launcher, tmp_path):
    with calibrated_server(60_000.0, 1.0) as slow:
        process = launcher.start(job_in(tmp_path, slow, sessions_plan(5, 1), bounds=LENIENT))
        while next_line(process, Progress).in_flight < 5:
            pass
        process.send_signal(signal.SIGINT)
        while next_line(process, Progress).state != "draining":
            pass
        process.send_signal(signal.SIGINT)
        next_line(process, Finished)
        assert process.wait(20) == 130
    rows, done = recorded(tmp_path)
    assert done == [True]
    assert rows["status"].to_pylist() == ["unfinished"] * 5


def test_a_killed_load_generator_keeps_what_it_had_recorded(launcher, tmp_path, port):
    process = launcher.start(job_in(tmp_path, port, sessions_plan(2000, 1, gap_ns=5_000_000), bounds=LENIENT))
    while (progress := next_line(process, Progress)).done < 50:
        pass
    children = psutil.Process(process.pid).children()
    process.kill()
    process.wait(20)
    psutil.wait_procs(children, 20)
    rows, done = recorded(tmp_path)
    assert done == [False]  # so that everybody sees that the run is partial
    assert rows.num_rows >= progress.done - 1
    assert set(rows["status"].to_pylist()) == {"ok"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text.replace('"seed"', '"sead"'), "sead"),
        (lambda text: text.replace("/plan", "/no-such-plan"), "no such file"),
        (lambda text: text.replace("http:", "gopher:"), "expected http:"),
    ],
)
def test_a_wrong_job_is_one_line_and_exit_code_2(launcher, tmp_path, spoil, words):
    job = job_in(tmp_path, 1, sessions_plan(1, 1))
    job.write_text(spoil(job.read_text()))
    process = launcher.start(job)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    said = (out + err).decode()
    assert words in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1


def test_server_metrics_are_sampled_beside_the_run(launcher, tmp_path):
    page = b'# TYPE kv_used gauge\nkv_used{worker="P"} 0.5\n'

    def answer(request):
        if request.path == "/metrics":
            request.reply(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
                % (len(page), page)
            )
        else:
            request.reply(tokens_answer([1, 2]))

    with serving(answer) as server:
        scrape = Scrape(
            (f"http://127.0.0.1:{server.port}/metrics", "http://127.0.0.1:1/metrics"), every_s=0.1
        )
        process = launcher.start(
            job_in(
                tmp_path, server.port, sessions_plan(20, 1, gap_ns=20_000_000), scrape=scrape, bounds=LENIENT
            )
        )
        next_line(process, Finished)
        assert process.wait(20) == 0
    rows = pq.read_table(tmp_path / "run/server_metrics/cell=c/rep=0/loadgen-0.parquet").to_pylist()
    assert rows
    assert {(row["metric"], row["labels"], row["value"]) for row in rows} == {
        ("kv_used", '{"worker":"P"}', 0.5)
    }
    assessment = read_assessment(tmp_path / "run/loadgen/cell=c/rep=0/loadgen-0.json")
    assert assessment.scrapes >= 1
    assert assessment.scrape_errors >= 1


def content(folder):
    rows, _ = recorded(folder)
    return {
        (
            row["request_id"],
            row["prompt_tokens"],
            row["requested_tokens"],
            tuple(row["output_ids"]),
            row["phase"],
        )
        for row in rows.to_pylist()
    }


def test_two_workers_replay_what_one_process_does(launcher, tmp_path, port):
    plan = sessions_plan(30, 3)
    for name, processes in (("one", 1), ("two", 2)):
        process = launcher.start(
            job_in(tmp_path / name, port, plan, processes=processes, bounds=LENIENT, keep_output_ids=True)
        )
        finished = next_line(process, Finished)
        assert process.wait(30) == 0, process.stderr.read()
        assert finished.requests == {"ok": 90}
    assert content(tmp_path / "one") == content(tmp_path / "two")
    rows, _ = recorded(tmp_path / "two")
    sessions = {}
    for row in rows.to_pylist():
        sessions.setdefault(row["session_id"], set()).add(row["shard"])
    assert all(len(shards) == 1 for shards in sessions.values())
    assert len(set.union(*sessions.values())) == 2
    merged = read_assessment(tmp_path / "two/run/loadgen/cell=c/rep=0/merged.json")
    assert merged.recorded == 90
    assert merged.clock_offset_ms == 0  # one machine, one clock


def test_a_killed_worker_is_reported_and_what_it_recorded_kept(launcher, tmp_path, port):
    plan = sessions_plan(200, 1, gap_ns=30_000_000)
    process = launcher.start(job_in(tmp_path, port, plan, processes=2, bounds=LENIENT))
    while next_line(process, Progress).done < 60:
        pass
    workers = [p for p in psutil.Process(process.pid).children() if "harness.loadgen.join" in p.cmdline()]
    victims = [workers[0], *workers[0].children()]
    workers[0].kill()
    assert "worker lost" in next_line(process, Warned).message
    finished = next_line(process, Finished)
    assert process.wait(30) == 3
    psutil.wait_procs(victims, 20)
    assert any("worker lost" in reason for reason in finished.reasons)
    rows, done = recorded(tmp_path)
    assert sorted(done) == [False, True]
    by_shard = rows["shard"].to_pylist()
    assert len(set(by_shard)) == 2
    merged = read_assessment(tmp_path / "run/loadgen/cell=c/rep=0/merged.json")
    assert len(merged.lost_shards) == 1
    assert merged.requests["ok"] == by_shard.count(
        ({"loadgen-0", "loadgen-1"} - set(merged.lost_shards)).pop()
    )


def test_workers_join_by_name_and_late_ones_are_refused(launcher, tmp_path, port):
    plan = sessions_plan(120, 1, gap_ns=40_000_000)
    job = job_in(tmp_path, port, plan, master=MasterOptions(workers=1, port=0), bounds=LENIENT)
    process = launcher.start(job)
    told = next_line(process, Warned).message
    master_port = told.rsplit(" ", 1)[1]
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "worker",
        "--master-host",
        "127.0.0.1",
        "--master-port",
        master_port,
    ]
    command += ["--run-dir", str(tmp_path / "run")]
    first = launcher.run(*command)
    next_line(process, Progress)
    late = launcher.run(*command)
    _, said = late.communicate(timeout=60)
    assert late.returncode == 2
    assert b"refused by the master" in said
    finished = next_line(process, Finished)
    assert finished.requests == {"ok": 120}
    assert process.wait(30) == 0
    out, _ = first.communicate(timeout=30)
    assert first.returncode == 0
    assert b"120 requests recorded" in out


def test_too_few_workers_end_the_run_in_one_line(launcher, tmp_path, port):
    job = job_in(tmp_path, port, sessions_plan(1, 1), master=MasterOptions(workers=2, port=0, join_s=0.5))
    process = launcher.start(job)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "0 of 2 workers joined within 0.5 s" in out.decode().splitlines()[-1]


def test_the_web_interface_shows_token_rows_while_the_run_lasts(launcher, tmp_path, port):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        web_port = probe.getsockname()[1]
    plan = sessions_plan(400, 1, gap_ns=10_000_000)
    process = launcher.start(
        job_in(tmp_path, port, plan, web=Web(port=web_port), bounds=LENIENT, limits=Limits(drain_s=5.0))
    )

    def fetch(path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}{path}", timeout=10) as answer:
            return answer.read()

    while next_line(process, Progress).done < 20:
        pass
    rows = {}
    deadline = time.monotonic() + 10
    while not rows and time.monotonic() < deadline:
        rows = {row["name"]: row for row in msgspec.json.decode(fetch("/pddbench-rows"))["stats"]}
        time.sleep(0.05)
    assert rows["TTFT"]["count"] > 0
    assert rows["TTFT"]["p50"] >= 5.0
    assert rows["ITL"]["count"] > rows["TTFT"]["count"]
    assert "handoff gap" in rows
    assert b"Locust" in fetch("/")
    assert b"/pddbench/live" in fetch("/pddbench")
    assert msgspec.json.decode(fetch("/pddbench/live"))["points"]
    stats = {entry["name"] for entry in msgspec.json.decode(fetch("/stats/requests"))["stats"]}
    assert {"TTFT", "ITL", "whole request"} <= stats
    process.send_signal(signal.SIGINT)
    next_line(process, Finished)
    assert process.wait(20) == 130
