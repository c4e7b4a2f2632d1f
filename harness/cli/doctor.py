"""`pddbench doctor`: what this machine can do, and what is missing for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.experiment.doctor import Report


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> None:
    """Look at this machine: link drivers, engines, clocks, and what killed runs have left.

    Every line says what was found or, where something is missing, what to install. Nothing is changed:
    network namespaces are made and thrown away to try the drivers, no guest is booted.

    \b
    The driver that `--link auto` takes is the first usable one of
      netem   real qdiscs in this kernel, in network namespaces
      uml     the same qdiscs in the kernel of a user-mode-linux guest
      relay   a TCP relay in user space; TCP is modelled, results never compare with the others'

    Exit code 1 when a benchmark cannot be run at all.
    """
    import asyncio
    import sys

    import msgspec

    from harness.experiment.doctor import examine

    report = asyncio.run(examine())
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        _print(report)
    sys.exit(0 if report.able else 1)


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in report.items:
        table.add_row(
            f"{item.area}: {item.name}", "[green]ok[/]" if item.usable else "[yellow]no[/]", item.note
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\n--link auto takes [bold]{report.link_driver}[/]: {report.link_reason}", soft_wrap=True)
