"""A night for a CI job: Markdown for people, JUnit XML for the machine."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from reports import numbers
from reports.nightly.gate import Finding, Outcome
from reports.nightly.record import JobState, Night, NightVerdict

_MARKS = {
    Outcome.REGRESSED: "worse",
    Outcome.IMPROVED: "better",
    Outcome.PASSED: "as before",
    Outcome.UNKNOWN: "not judged",
}


def told(finding: Finding) -> str:
    """One finding as a line."""
    head = f"{finding.job} / {finding.cell}: {finding.figure} {numbers.value(finding.value, finding.unit)}"
    if finding.reference is None or finding.change is None:
        return f"{head} ({finding.reason or _MARKS[finding.outcome]})"
    change = (
        numbers.percent(finding.change)
        if finding.reference
        else f"+{numbers.value(finding.change, finding.unit)}"
    )
    since = f", since {finding.since}" if finding.since else ""
    reference = numbers.value(finding.reference, finding.unit)
    against = f"{change} against {reference} of {finding.nights} nights{since}"
    return f"{head}, {against} ({numbers.p_value(finding.adjusted_p)})"


def markdown(night: Night, findings: Sequence[Finding]) -> str:
    """The night's summary: verdict first, then what changed, then the jobs."""
    verdict = night.verdict or NightVerdict.INCOMPLETE
    commit = (night.commit or "unknown")[:12]
    lines = [
        f"## {night.suite}: {verdict.value}",
        "",
        f"Night {night.night}, commit `{commit}`, {night.host_class}",
        "",
    ]
    for outcome, title in ((Outcome.REGRESSED, "Worse"), (Outcome.IMPROVED, "Better")):
        these = [finding for finding in findings if finding.outcome is outcome]
        if these:
            lines += [f"### {title}", "", *(f"- {told(finding)}" for finding in these), ""]
    lines += ["### Jobs", "", "| job | state | minutes | valid | remark |", "|---|---|---:|---|---|"]
    for job in night.jobs:
        minutes = "" if job.seconds is None else f"{job.seconds / 60:.1f}"
        valid = "" if job.valid is None else "yes" if job.valid else "**no**"
        lines.append(f"| {job.name} | {job.state.value} | {minutes} | {valid} | {job.reason} |")
    lines += [
        "",
        "### Figures",
        "",
        "| job | cell | figure | tonight | reference | change | adj. p | |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for finding in findings:
        reference = "" if finding.reference is None else numbers.value(finding.reference, finding.unit)
        change = "" if finding.change is None else numbers.percent(finding.change)
        p = numbers.p_value(finding.adjusted_p).removeprefix("p = ").removeprefix("p ")
        value = numbers.value(finding.value, finding.unit)
        lines.append(
            f"| {finding.job} | {finding.cell} | {finding.figure} | {value} | {reference} | {change} | {p} | "
            f"{finding.reason or _MARKS[finding.outcome]} |"
        )
    return "\n".join(lines) + "\n"


def junit(night: Night, findings: Sequence[Finding]) -> bytes:
    """JUnit XML: a suite for each job, a case for each gated figure of each cell, and one for the run."""
    root = ET.Element("testsuites", name=night.suite)
    for job in night.jobs:
        mine = [finding for finding in findings if finding.job == job.name]
        suite = ET.SubElement(root, "testsuite", name=f"{night.suite}.{job.name}")
        run = ET.SubElement(suite, "testcase", classname=f"{night.suite}.{job.name}", name="run")
        if job.seconds is not None:
            run.set("time", f"{job.seconds:.1f}")
        if job.state is JobState.SKIPPED:
            ET.SubElement(run, "skipped", message=job.reason)
        elif job.state is not JobState.DONE:
            ET.SubElement(run, "error", message=job.reason or job.state.value)
        elif job.valid is False:
            ET.SubElement(run, "failure", message=f"invalid: {job.reason}")
        for finding in mine:
            case = ET.SubElement(
                suite, "testcase", classname=f"{night.suite}.{job.name}.{finding.cell}", name=finding.figure
            )
            if finding.outcome is Outcome.REGRESSED:
                ET.SubElement(case, "failure", message=told(finding))
            elif finding.outcome is Outcome.UNKNOWN:
                ET.SubElement(case, "skipped", message=finding.reason)
        cases = suite.findall("testcase")
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
        suite.set("tests", str(len(cases)))
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
