"""What the commands share: options, lines on stderr, and what a signal does."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from worker.contract.errors import InterruptedRunError

CacheOption = Annotated[
    Path | None, typer.Option(help="Where prepared checkpoints are kept. Default: the user's cache.")
]
LockOption = Annotated[Path | None, typer.Option(help="The machine's benchmark lock. Default: one for all users.")]


def say(text: str) -> None:
    typer.echo(text, err=True)


def stop_on_signals() -> None:
    def stop(number: int, _frame: object) -> NoReturn:
        raise InterruptedRunError(f"stopped by {signal.Signals(number).name}")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
