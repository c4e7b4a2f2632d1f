"""`pddbench`: the command line. Commands load when called, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

from harness.cli.failure import exit_code

_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # name: (module, what --help says without loading it)
    "run": ("harness.cli.run", "Run an experiment on a live cluster and report on it."),
    "sim": ("harness.cli.sim", "Run the same experiment in virtual time."),
    "report": ("harness.cli.report", "Print and render the report of a run."),
    "compare": ("harness.cli.compare", "Compare runs, with intervals and significance."),
    "trace": ("harness.cli.trace", "Inspect, convert and synthesise traces."),
    "replay": ("harness.cli.replay", "Replay a run's decision log through the policy."),
    "export": ("harness.cli.export", "Export a run to other tools' formats."),
    "nightly": ("harness.cli.nightly", "Run a suite into a store and gate on regressions."),
    "worker": ("harness.cli.worker", "Join a distributed load generation as a worker."),
    "selftest": ("harness.cli.selftest", "Measure the load generator's own error."),
    "doctor": ("harness.cli.doctor", "Tell what this machine can do and what is missing."),
    "reproduce": ("harness.cli.reproduce", "Reproduce the PDD report's results in simulation."),
    "feasibility": ("harness.cli.feasibility", "Say whether a WAN line carries a model's KV traffic."),
    "plan": ("harness.cli.plan", "Search cluster sizes and policy for the best benefit-cost ratio."),
    "completion": ("harness.cli.completion", "Print the shell completion script."),
}


class _LazyGroup(click.Group):
    """A group whose commands are modules named in a literal table."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, doc) for name, (_, doc) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pddbench")
def cli() -> None:
    """Benchmark cross-datacenter Prefill-RelayDecode-MainDecode inference by replaying agentic traces.

    \b
    Exit codes:
      0    done
      1    the run itself failed
      2    wrong usage, configuration or input (one line says what, where, and what would be right)
      3    the run is complete but invalid (the report says why)
      4    a --fail-if condition or a nightly gate was met
      130  interrupted; what was recorded is kept
    """


def main() -> None:
    """Console entry point: domain errors become one line and an exit code."""
    try:
        code = cli.main(standalone_mode=False)
        if isinstance(code, int):  # what a command gave to ctx.exit()
            sys.exit(code)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except (ValueError, RuntimeError, OSError) as error:
        code = exit_code(error)
        if code is None:
            raise
        click.echo(f"error: {error}", err=True)
        sys.exit(code)
