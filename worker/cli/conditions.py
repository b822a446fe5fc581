"""The command that looks at the machine before anything runs."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(condition)


def condition() -> None:
    """Print the machine's present condition as JSON; null is what it does not say."""
    from worker.machine.present import present_condition

    typer.echo(present_condition().to_json())
