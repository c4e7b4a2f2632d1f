"""Writes the documents that are generated from the code: `python -m docs.generate [--check]`."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import typing
from pathlib import Path
from typing import Any

import msgspec

from harness.experiment import config as experiment
from harness.faults import Fault
from harness.link import Direction, LinkProfile
from harness.loadgen import job
from harness.policy import config as policy
from harness.policy.phase import TRANSITIONS, Phase
from harness.sim.settings import SimSettings

DOCS = Path(__file__).parent


def field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a class, which is its documentation."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            docs[statement.target.id] = " ".join(str(following.value.value).split())
    return docs


def type_text(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).replace("typing.", "").replace("harness.", "").split("Meta")[0]


def default_text(value: Any) -> str:
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, msgspec.Struct):
        return "its defaults"
    if isinstance(value, str):
        return f'"{value}"' if value else '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "not set"
    return str(value) if not callable(value) else str(value())


def table(title: str, kind: type[msgspec.Struct]) -> str:
    """One section: what it is, and a row a key."""
    docs = field_docs(kind)
    lines = [
        f"## {title}",
        "",
        inspect.cleandoc(kind.__doc__ or ""),
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    for field in msgspec.structs.fields(kind):
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        meaning = docs.get(field.name, "").replace("|", "\\|")
        lines.append(f"| `{field.encode_name}` | {default_text(default)} | {meaning} |")
    return "\n".join(lines) + "\n"


def configuration() -> str:
    sections = [
        ("The experiment", experiment.Experiment),
        ("[workload]", experiment.WorkloadConfig),
        ("[cluster]", experiment.ClusterConfig),
        ("[link]", experiment.LinkConfig),
        ("A link profile written out: [link.profile]", LinkProfile),
        ("[link.profile.a_to_b], [link.profile.b_to_a]", Direction),
        ("[load]", experiment.LoadConfig),
        ("[load.limits]", job.Limits),
        ("[load.warmup]", job.Warmup),
        ("[load.cancellation]", job.Cancellation),
        ("[load.bounds]", job.Bounds),
        *((f'[load.arrivals] type = "{k.__struct_config__.tag}"', k) for k in typing.get_args(job.Arrivals)),
        ("[policy], and [cells.policy]", policy.PolicyConfig),
        ("[policy.handoff]", policy.HandoffConfig),
        ("[policy.routing]", policy.RoutingConfig),
        ("[slo]", experiment.SloConfig),
        ("[cost]", experiment.CostConfig),
        ("[sim]", SimSettings),
        ("[[cells]]", experiment.CellConfig),
        *((f'[[faults]] kind = "{k.__struct_config__.tag}"', k) for k in typing.get_args(Fault)),
    ]
    modes = "\n".join(f"| `{name}` | {mode.doc} |" for name, mode in policy.MODES.items())
    intro = (
        "# Configuration\n\n"
        "An experiment is one TOML file. Every key is known and checked; a wrong one is named with what "
        "would be right, before anything starts. `--set KEY=VALUE` overrides any key from the command line. "
        "The resolved file is kept in the run's folder and repeats the run.\n\n"
        "This page is generated from the code (`tox -e docs`).\n\n"
        f"## Modes\n\n| mode | what it is |\n|---|---|\n{modes}\n"
    )
    return intro + "\n" + "\n".join(table(title, kind) for title, kind in sections)


def state_machine() -> str:
    lines = ["stateDiagram-v2", "    [*] --> loading", "    [*] --> streaming: colocated, append"]
    for phase, row in TRANSITIONS.items():
        edges: dict[Phase, list[str]] = {}
        for trigger, targets in row.items():
            for target in targets:
                if target is not phase:
                    edges.setdefault(target, []).append(trigger.value)
        lines += [f"    {phase} --> {target}: {', '.join(names)}" for target, names in edges.items()]
    lines.append("    settled --> [*]")
    theory = inspect.cleandoc(sys.modules[Phase.__module__].__doc__ or "")
    rows = [
        f"| {phase} | {trigger} | {', '.join(targets)} |"
        for phase, row in TRANSITIONS.items()
        for trigger, targets in row.items()
    ]
    return (
        "# The policy's state machine\n\nGenerated from `harness/policy/phase.py` (`tox -e docs`).\n\n"
        f"```text\n{theory}\n```\n\n```mermaid\n" + "\n".join(lines) + "\n```\n\n"
        "| phase | trigger | leads to |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


PAGES = {"configuration.md": configuration, "state-machine.md": state_machine}


def main(arguments: list[str]) -> int:
    stale = []
    for name, write in PAGES.items():
        path, text = DOCS / name, write()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stdout.write(f"{'stale' if '--check' in arguments else 'written'}: {', '.join(stale)}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
