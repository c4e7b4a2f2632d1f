"""The command that gates: it measures, prints, and exits by its bounds."""

from __future__ import annotations

import sys

import msgspec

from tests.loadgen.processes import Launcher

SMALL = ("--rate", "60", "--seconds", "1", "--tokens", "8", "--ttft-ms", "20", "--itl-ms", "2")
# The tests' machine may be busy: that the figures are good is the benchmark's business, not this test's.
LENIENT = ("--max-ttft-error-ms", "5000", "--max-event-error-ms", "5000", "--max-lateness-ms", "50000")


def selftest(*options: str) -> tuple[int, bytes]:
    launcher = Launcher()
    try:
        process = launcher.run(sys.executable, "-m", "harness.cli", "selftest", *SMALL, *options)
        out, _ = process.communicate(timeout=90)
        return process.returncode, out
    finally:
        launcher.close()


def test_within_its_bounds_it_succeeds_and_prints_every_error():
    code, out = selftest(*LENIENT, "--json")
    assert code == 0
    figures = msgspec.json.decode(out)
    assert figures["ok"] == figures["requests"] == 60
    assert figures["exceeded"] == []
    for name in ("first_token_error", "ttft_error", "event_error", "lateness"):
        assert figures[name]["p50_ms"] <= figures[name]["p99_ms"] <= figures[name]["max_ms"]
    assert figures["first_token_error"]["p50_ms"] > 0  # two clocks were compared, not one with itself


def test_beyond_a_bound_the_exit_code_says_so():
    code, out = selftest(*LENIENT, "--max-lateness-ms", "0.0000001")
    assert code == 4
    assert b"lateness P99" in out
