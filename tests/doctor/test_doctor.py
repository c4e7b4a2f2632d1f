"""The doctor names the driver that --link auto takes, and why not a better one."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from adapters.links import Finding
from harness.cli.doctor import command
from harness.experiment import doctor


def found(monkeypatch, **reasons):
    async def probe(driver):
        return Finding(driver, usable=driver not in reasons, reason=reasons.get(driver, f"{driver} works"))

    monkeypatch.setattr(doctor, "probe", probe)


@pytest.mark.parametrize(
    ("missing", "taken", "said"),
    [
        ({}, "netem", "netem works"),
        ({"netem": "no sch_netem"}, "uml", "uml works; netem would be better, but: no sch_netem"),
        (
            {"netem": "no sch_netem", "uml": "not there"},
            "relay",
            "relay works; netem would be better, but: no sch_netem; uml would be better, but: not there",
        ),
    ],
)
def test_the_first_usable_driver_is_taken_and_the_better_ones_are_accounted_for(
    monkeypatch, missing, taken, said
):
    found(monkeypatch, **missing)
    report = asyncio.run(doctor.examine())
    assert (report.link_driver, report.link_reason) == (taken, said)


def test_a_missing_option_is_no_failure_and_a_missing_need_is(monkeypatch):
    found(monkeypatch, netem="no", uml="no")
    assert asyncio.run(doctor.examine()).able
    monkeypatch.setattr(doctor, "_spec", lambda package: None)
    report = asyncio.run(doctor.examine())
    assert not report.able
    assert {item.name: item.usable for item in report.items}["llamacpp"] is False


def test_the_command_says_it_to_people_and_to_scripts(monkeypatch):
    found(monkeypatch, netem="no sch_netem")
    said = CliRunner().invoke(command)
    assert said.exit_code == 0
    assert "--link auto takes uml" in said.output
    report = json.loads(CliRunner().invoke(command, ["--json"]).output)
    assert report["link_driver"] == "uml"
    assert any(item["name"] == "relay" and item["usable"] for item in report["items"])
