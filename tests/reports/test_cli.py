"""`pddbench report`, `compare` and `export` as a shell sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_run import FakeRun

from harness.cli.compare import command as compare
from harness.cli.report import command as report
from reports.errors import ReportError
from reports.run import Run
from reports.runinfo import RunState
from reports.schema import REQUESTS
from reports.writer import TableWriter

SMALL = FakeRun(cells=("pdd",), sessions=16, turns=5)


def call(command: object, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    SMALL.write(folder / "a")
    replace(SMALL, seed=5, slower={"pdd": 1.6}).write(folder / "b")
    return folder / "a", folder / "b"


def test_report_prints_the_cells_and_writes_the_page(two_modes: Run) -> None:
    result = call(report, two_modes.path)
    assert result.exit_code == 0
    assert "faster to the first token" in result.output
    assert "ttft_p99" in result.output
    assert (two_modes.path / "report.html").exists()


def test_report_of_a_killed_run_says_that_it_is_partial(tmp_path: Path) -> None:
    run = replace(SMALL, state=RunState.RUNNING).write(tmp_path / "run")
    row = run.table("requests").drop_columns(["cell", "rep"]).to_pylist()[-1]
    out = TableWriter(run.path, REQUESTS, cell="pdd", rep=0, shard="killed")
    out.write({**row, "request_id": "late"})
    out.close(finish=False)
    result = call(report, run.path, "--no-html")
    assert result.exit_code == 0
    assert "INVALID" in result.output
    assert "partial: the run is still running, or killed" in result.output
    result = call(report, run.path, "--no-html", "--recover")
    assert "recovered" in result.output
    assert (run.path / "requests/cell=pdd/rep=0/killed.parquet").exists()


def test_report_as_json_is_nothing_but_json(two_modes: Run) -> None:
    result = call(report, two_modes.path, "--json", "--no-html")
    assert json.loads(result.output)["runs"][0]["valid"] is True


def test_compare_a_run_with_itself_exits_0_and_finds_nothing(pair: tuple[Path, Path]) -> None:
    result = call(compare, pair[0], pair[0], "--fail-if", "ttft_p50 > +0%", "--json")
    assert result.exit_code == 0
    changes = json.loads(result.output)["comparisons"][0]["changes"]
    assert {change["verdict"] for change in changes.values()} <= {"~", "undefined"}


def test_compare_exits_4_when_a_condition_holds(pair: tuple[Path, Path]) -> None:
    result = call(compare, *pair, "--fail-if", "ttft_p50 > +5%", "--fail-if", "tpot_p50 > +5%")
    assert result.exit_code == 4
    assert "--fail-if ttft_p50 > +5%: b:pdd has" in result.output
    assert "--fail-if tpot_p50" not in result.output


def test_compare_exits_3_for_an_invalid_run(pair: tuple[Path, Path], tmp_path: Path) -> None:
    broken = replace(SMALL, state=RunState.INTERRUPTED).write(tmp_path / "c")
    assert call(compare, pair[0], broken.path).exit_code == 3


def test_compare_writes_markdown_and_html(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = call(compare, *pair, "--markdown", "--html", tmp_path / "c.html")
    assert result.output.startswith("## fake")
    assert "| ttft_p50 |" in result.output
    assert "<h1>" in (tmp_path / "c.html").read_text()


def test_compare_needs_two(pair: tuple[Path, Path]) -> None:
    with pytest.raises(ReportError, match="name at least two runs"):
        call(compare, pair[0])


def test_the_exit_code_reaches_the_shell(pair: tuple[Path, Path]) -> None:
    """Through the console script's own entry point, which turns errors into exit codes."""
    program = "import sys; sys.argv[0] = 'pddbench'; from harness.cli import main; main()"
    arguments = ["compare", *(str(path) for path in pair), "--fail-if", "ttft_p50 > +5%"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 4
    done = subprocess.run(
        [sys.executable, "-c", program, "compare", str(pair[0]), "gone"],
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.decode().startswith("error: gone: no such run directory")
