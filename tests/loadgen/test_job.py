from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.loadgen.job import (
    Cancellation,
    ClosedLoop,
    JobError,
    LoadJob,
    MasterOptions,
    Target,
    decode_job,
    encode_job,
    read_job,
)

JOB = LoadJob(
    target=Target("http://x", extra_body={"top_p": msgspec.Raw(b"0.5")}),
    plan=Path("p"),
    run_dir=Path("r"),
    cell="c",
    rep=1,
    seed=3,
    arrivals=ClosedLoop(4),
    cancellation=Cancellation(0.1, after_tokens=3),
    master=MasterOptions(workers=2),
)


def test_a_job_survives_its_file():
    again = decode_job(encode_job(JOB))
    assert encode_job(again) == encode_job(JOB)
    assert again.arrivals == ClosedLoop(4)
    assert again.plan == Path("p")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"seed"', b'"sead"', "sead"),
        (b'"closed"', b'"clozed"', "clozed"),
        (b'"sessions": 4', b'"sessions": 0', "arrivals.sessions"),
        (b'"api": "pdd"', b'"api": "ftp"', "target.api"),
    ],
)
def test_a_wrong_key_or_value_is_named(old, new, words):
    data = encode_job(JOB)
    assert old in data
    with pytest.raises(JobError, match=words):
        decode_job(data.replace(old, new))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(JobError, match="No such file"):
        read_job(tmp_path / "none.json")
