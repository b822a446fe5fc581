"""`fleet watch`: the machines and the studies, as the driver sees them now, until Ctrl-C or nothing is left to run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import DataDirectory, DataOption, data_directory
from fleet.cli.text import task_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from fleet.cluster.live import Live
    from fleet.ledger.state import StudyState

REFRESH_S = 1.0


def watch(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the present state and end.")] = False,
    data: DataOption = None,
) -> None:
    """Show what runs where, how fast, and what waits and why."""
    from rich.console import Console
    from rich.live import Live as Screen

    from fleet.errors import InterruptedStudyError

    directory = data_directory(data)
    console = Console(highlight=False)
    if once or not console.is_terminal:
        console.print(_picture(directory)[0])
        return
    try:
        with Screen(console=console, auto_refresh=False) as screen:
            more = True
            while more:
                picture, more = _picture(directory)
                screen.update(picture, refresh=True)
                if more:
                    time.sleep(REFRESH_S)
    except KeyboardInterrupt:
        raise InterruptedStudyError("no longer watching; the studies go on", "fleet watch looks again") from None


def _picture(directory: DataDirectory) -> tuple[RenderableType, bool]:
    """What to show, and whether anything is left to run."""
    from rich.console import Group

    from fleet.cli.lookup import known_studies
    from fleet.cluster.live import read_live
    from fleet.ledger.state import is_open

    studies = known_studies(directory)
    open_studies = [state for state in studies if is_open(state)]
    live = read_live(directory.root)
    return Group(machines_table(live, open_studies), studies_table(studies[-5:], live)), bool(open_studies)


def machines_table(live: Live | None, studies: Sequence[StudyState]) -> RenderableType:
    """One line per machine: what it does, or why it does nothing."""
    if live is None:
        return "no driver is at work: fleet serve starts one, fleet submit runs one study\n"
    labels = {str(job): task_label(task) for state in studies for job, task in state.tasks_of_jobs().items()}
    table = _table("machine", "state", "study", "task", "phase", "done", "tok/s")
    for machine in live.machines:
        doing = [machine.study_id or "", labels.get(machine.job or "", ""), machine.phase or machine.why or ""]
        share = "" if machine.fraction is None else f"{machine.fraction:.0%}"
        speed = "" if machine.tok_s is None else f"{machine.tok_s:.1f}"
        table.add_row(machine.name, machine.state, *doing, share, speed)
    return table


def studies_table(states: Sequence[StudyState], live: Live | None = None) -> RenderableType:
    """One line per study, the latest last, with the reason when its jobs wait."""
    from fleet.ledger.state import Cancelled, Done, Failed, Running

    if not states:
        return "no studies yet: fleet submit STUDY asks for one"
    table = _table("study", "jobs", "done", "failed", "cancelled", "running", "")
    for state in states:
        counts = (len(state.jobs), *(state.count(kind) for kind in (Done, Failed, Cancelled, Running)))
        waits = live.waits.get(state.study_id, "") if live else ""
        note = f"paused: {state.paused}" if state.paused else state.cancelled or waits
        table.add_row(state.study_id, *map(str, counts), note)
    return table


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, no_wrap=index == 0, overflow="fold")
    return table
