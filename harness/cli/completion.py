"""`pddbench completion SHELL`: the completion script click generates."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL; put it where your shell loads completions.

    \b
    Example:
      pddbench completion bash > ~/.local/share/bash-completion/completions/pddbench
    """
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(ctx.find_root().command, {}, "pddbench", "_PDDBENCH_COMPLETE").source())
