"""`fleet`: the command line of the head. Each command is a file: it parses, makes one call, and renders.

stdout carries the answer, stderr progress and messages. Any `FleetError` becomes one line `error:`, one line `hint:`
and its exit code; a traceback always means a defect.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleet.cli import control, demo, doctor, machines, report, schedule, serve, status, submit, summary, up, watch
from fleet.errors import FleetError

app = typer.Typer(
    name="fleet",
    help="Benchmark streaming MoE decode and MTP self-speculation on Apple-Silicon Macs, and compare the machines.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: drawing boxes takes longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("submit")(submit.submit)
app.command("status")(status.status)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("serve")(serve.serve)
app.command("cancel")(control.cancel)
app.command("pause")(control.pause)
app.command("resume")(control.resume)
app.command("logs")(control.logs)
app.command("summary")(summary.summary)
app.add_typer(machines.app, name="machines")
app.add_typer(schedule.app, name="schedule")
app.command("up")(up.up)
app.command("down")(up.down)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fleet {version('mlx-fleet')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version


def main() -> int:
    """Run a command line. Wrong arguments end with exit code 2 and Ctrl-C with 130, both told by typer itself."""
    try:
        app()
    except FleetError as error:
        _print_error(error.message, error.hint)
        return error.exit_code
    return 0


def _print_error(message: str, hint: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
