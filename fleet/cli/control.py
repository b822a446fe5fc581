"""`fleet cancel`, `pause`, `resume`, `logs`: what is said of a study once it was submitted. The driver follows the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.data import DataDirectory, DataOption, data_directory

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.ledger.state import StudyState

StudyOption = Annotated[str, typer.Argument(metavar="STUDY", help="An id, a name or a study file.", show_default=False)]
ReasonOption = Annotated[str, typer.Option("--reason", help="Kept, and shown where it matters.")]


def cancel(study: StudyOption, *, reason: ReasonOption = "cancelled by its owner", data: DataOption = None) -> None:
    """Run nothing more of a study: what waits is taken back, what runs is ended, what is done stays."""
    from fleet.ledger.events import StudyCancelled
    from fleet.ledger.sqlite import record
    from fleet.ledger.state import Running

    directory, state = _find(study, data)
    record(directory.root, StudyCancelled(study_id=state.study_id, reason=reason))
    running = f"; {state.count(Running)} running are ended" if state.count(Running) else ""
    typer.echo(f"study {state.study_id} is cancelled{running}; fleet submit brings it back")


def pause(study: StudyOption, *, reason: ReasonOption = "paused by its owner", data: DataOption = None) -> None:
    """Start nothing more of a study for now; what runs goes on."""
    from fleet.ledger.events import StudyPaused
    from fleet.ledger.sqlite import record

    directory, state = _find(study, data)
    record(directory.root, StudyPaused(study_id=state.study_id, reason=reason))
    typer.echo(f"study {state.study_id} is paused; fleet resume {state.study_id} goes on with it")


def resume(study: StudyOption, *, data: DataOption = None) -> None:
    """Go on with a study that was paused."""
    from fleet.ledger.events import StudyResumed
    from fleet.ledger.sqlite import record

    directory, state = _find(study, data)
    record(directory.root, StudyResumed(study_id=state.study_id))
    typer.echo(f"study {state.study_id} goes on")


def logs(
    reference: Annotated[
        str, typer.Argument(metavar="STUDY|ATTEMPT", help="A study's latest attempt, or one attempt.")
    ],
    *,
    data: DataOption = None,
) -> None:
    """Print the end of what an attempt wrote. One that still runs keeps it on its machine."""
    from fleet.errors import UsageError

    directory = data_directory(data)
    attempts = [reference] if (directory.logs / f"{reference}.log").is_file() else _attempts(reference, directory)
    for attempt in reversed(attempts):
        path = directory.logs / f"{attempt}.log"
        if path.is_file():
            typer.echo(f"attempt {attempt}", err=True)
            typer.echo(path.read_text(encoding="utf-8"), nl=False)
            return
    raise UsageError(f"{directory.logs}: nothing is kept of {reference!r} yet", "fleet status shows where it stands")


def _attempts(reference: str, directory: DataDirectory) -> list[str]:
    from fleet.cli.lookup import find_submitted
    from fleet.ledger.events import AttemptStarted
    from fleet.ledger.sqlite import Ledger

    state = find_submitted(reference, directory)
    with Ledger(directory.root, read_only=True) as ledger:
        events = [record.event for record in ledger.records(state.study_id)]
    return [event.attempt_id for event in events if isinstance(event, AttemptStarted)]


def _find(study: str, data: Path | None) -> tuple[DataDirectory, StudyState]:
    from fleet.cli.lookup import find_submitted

    directory = data_directory(data)
    return directory, find_submitted(study, directory)
