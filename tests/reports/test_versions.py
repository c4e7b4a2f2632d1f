"""Runs recorded by every released schema version stay readable; those of the future are refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reports.analysis import Analysis
from reports.errors import ReportError
from reports.run import Run
from reports.schema import SCHEMA_VERSION, TABLES

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = range(1, SCHEMA_VERSION + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_every_version_is_read_and_reported(version: int) -> None:
    run = Run.open(FIXTURES / f"schema-v{version}")
    for name in TABLES:
        assert {"cell", "rep"} <= set(run.table(name).column_names), name
    analysis = Analysis.of_run(run)
    assert analysis.comparisons[0].row("ttft_p50").change is not None


def rewritten(tmp_path: Path, change: object) -> Run:
    """The fixture with one changed requests shard."""
    shutil.copytree(FIXTURES / f"schema-v{SCHEMA_VERSION}", tmp_path / "run")
    path = next((tmp_path / "run/requests/cell=pdd").glob("rep=0/*.parquet"))
    # One file, not the folder: the partition columns must stay out of it.
    pq.write_table(change(pq.ParquetFile(path).read()), path)  # type: ignore[operator]
    return Run.open(tmp_path / "run")


def test_a_column_that_an_older_file_lacks_is_null(tmp_path: Path) -> None:
    run = rewritten(tmp_path, lambda table: table.drop_columns(["tenant", "connect_ns"]))
    table = run.table("requests", "pdd")
    assert table["tenant"].null_count == table.num_rows > 0
    assert table["connect_ns"].null_count == table.num_rows


def test_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    newer = str(SCHEMA_VERSION + 1)

    def raised(table: object) -> object:
        metadata = {**table.schema.metadata, b"pddbench_schema": newer.encode()}  # type: ignore[attr-defined]
        return table.replace_schema_metadata(metadata)  # type: ignore[attr-defined]

    run = rewritten(tmp_path, raised)
    with pytest.raises(ReportError, match=f"schema version {newer} was written by a newer pddbench"):
        run.table("requests", "pdd")


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    run = rewritten(tmp_path, lambda table: table.replace_schema_metadata(None))
    with pytest.raises(ReportError, match="not written by pddbench"):
        run.table("requests", "pdd")
