"""`fleet report [STUDY]`: the per-hardware comparison of a study, from the stored rows, in four formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.data import DataDirectory, DataOption, data_directory
from fleet.errors import StorageError, UsageError

if TYPE_CHECKING:
    from fleet.ledger.state import StudyState
    from fleet.report.hardware import HardwareReport


class Format(StrEnum):
    """How a report is written."""

    terminal = "terminal"
    md = "md"
    json = "json"
    html = "html"


def report(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="An id, a name or a study file.", show_default=False)
    ] = None,
    *,
    last: Annotated[bool, typer.Option("--last", help="The study that was submitted last.")] = False,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to write it.")] = Format.terminal,  # noqa: A002
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
    data: DataOption = None,
) -> None:
    """Compare the machines and variants of a study. Without STUDY: the one that was submitted last."""
    from fleet.cli.lookup import find_submitted

    if study and last:
        raise UsageError("--last and a study were both given", "name one of them")
    directory = data_directory(data)
    made = make_report(find_submitted(study, directory), directory)
    if out is not None:
        write_report(made, format, out)
    elif format is Format.terminal:
        print_report(made)
    else:
        typer.echo(_text(made, format))


def make_report(state: StudyState, directory: DataDirectory) -> HardwareReport:
    """The report of what is done so far; what is not done is named in its warnings.

    Raises: UsageError when nothing is done.
    """
    from fleet.report.hardware import hardware_report
    from fleet.store.runs import RunStore

    if not state.done_attempts:
        raise UsageError(
            f"study {state.study_id}: none of its {len(state.jobs)} tasks is done", f"fleet status {state.study_id}"
        )
    tables = RunStore(directory.store).scan(state.study_id, state.done_attempts)
    return hardware_report(tables, study=state.study_id, warnings=_open_tasks(state))


def print_report(made: HardwareReport) -> None:
    from rich.console import Console

    from fleet.report import terminal

    terminal.render(made, Console())


def write_report(made: HardwareReport, format: Format, path: Path) -> None:  # noqa: A002
    """Raises: StorageError."""
    write_page(path, _text(made, format), what="report", option="--out")


def write_page(path: Path, text: str, *, what: str, option: str) -> None:
    """Write atomically; `option` is the one that names the file. Raises: StorageError."""
    part = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"{path}: the {what} cannot be written: {reason}", f"choose another {option}") from error


def _text(made: HardwareReport, format: Format) -> str:  # noqa: A002
    from fleet.report import html, json, markdown, terminal

    match format:
        case Format.md:
            return markdown.render(made)
        case Format.json:
            return json.render(made)
        case Format.html:
            return html.render(made)
        case Format.terminal:
            from io import StringIO

            from rich.console import Console

            text = StringIO()
            terminal.render(made, Console(file=text, width=160))
            return text.getvalue()


def _open_tasks(state: StudyState) -> list[str]:
    from fleet.cli.text import task_label
    from fleet.ledger.state import Cancelled, Done, Failed

    tasks = state.tasks_of_jobs()
    failed = [
        f"{task_label(tasks[job])} failed: {failure.message}"
        for job, failure in state.jobs.items()
        if isinstance(failure, Failed)
    ]
    cancelled = [job.reason for job in state.jobs.values() if isinstance(job, Cancelled)]
    num_open = len(state.jobs) - state.count(Done, Failed, Cancelled)
    of = f"of {len(state.jobs)} tasks"
    return [
        *failed,
        *([f"{len(cancelled)} {of} were cancelled: {cancelled[0]}"] if cancelled else []),
        *([f"{num_open} {of} have not run yet"] if num_open else []),
    ]
