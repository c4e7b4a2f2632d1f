"""How a run that was interrupted ends: 130, with a report if there is something to report."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from harness.cli.conclusion import conclude
from reports.errors import ReportError
from reports.runinfo import RepInfo, RunInfo, RunState, Validity
from reports.schema import REQUESTS
from reports.writer import TableWriter
from tests.reports.fake_run import FakeRun


def ended(tmp_path: Path, state: RunState) -> RunInfo:
    """A run whose only cell under load has recorded no request yet."""
    info = msgspec.structs.replace(FakeRun().info([]), state=state)
    info.write(tmp_path)
    TableWriter(tmp_path, REQUESTS, cell="pdd", rep=0, shard="loadgen-0").close()
    return info


def test_an_interrupted_run_without_a_request_ends_with_130_and_says_that_there_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = ended(tmp_path, RunState.INTERRUPTED)
    with pytest.raises(SystemExit) as caught:
        conclude(info, tmp_path, Console(stderr=True, width=200), as_json=True, no_report=False)
    assert caught.value.code == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["report"] is None
    assert "no report: " in err


def test_a_complete_run_without_a_request_is_an_error(tmp_path: Path) -> None:
    info = ended(tmp_path, RunState.COMPLETE)
    with pytest.raises(ReportError, match="no measured requests"):
        conclude(info, tmp_path, Console(stderr=True, width=200), as_json=True, no_report=False)


def test_an_invalid_run_names_the_reasons_of_its_repetitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = ended(tmp_path, RunState.COMPLETE)
    rep = RepInfo("pdd", 1, order=0, started_ns=0, ended_ns=1, validity=Validity(False, ("late",)))
    info = msgspec.structs.replace(info, reps=(rep,), validity=Validity(False))
    with pytest.raises(SystemExit) as caught:
        conclude(info, tmp_path, Console(stderr=True, width=200), as_json=True, no_report=True)
    assert caught.value.code == 3
    verdict = json.loads(capsys.readouterr().out)["validity"]
    assert verdict == {"valid": False, "reasons": ["pdd rep 1: late"], "cautions": []}
