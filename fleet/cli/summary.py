"""`fleet summary [SCHEDULE]`: what a night brought, what it did not and why, and what changed against the one before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.data import DataDirectory, DataOption, data_directory
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.ledger.schedule_state import Night, ScheduleState
    from fleet.ledger.sqlite import Ledger
    from fleet.ledger.state import StudyState
    from fleet.report.hardware import HardwareReport
    from fleet.report.morning import JobFact, MorningReport
    from fleet.study.study import StudyId


def summary(
    schedule: Annotated[
        str | None,
        typer.Argument(metavar="[SCHEDULE]", help="Default: the one whose night began last.", show_default=False),
    ] = None,
    *,
    night: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The date on which it began. Default: the last.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file instead.", show_default=False)
    ] = None,
    data: DataOption = None,
) -> None:
    """Sum a night up: what ran, what did not and why, what became faster or slower."""
    from rich.console import Console

    from fleet.cli.report import write_page
    from fleet.report.morning_page import morning_html, print_morning

    directory = data_directory(data)
    made = make_morning(directory, schedule, night)
    if html is None:
        print_morning(made, Console())
    else:
        write_page(html, morning_html(made), what="summary", option="--html")
        typer.echo(html)


def make_morning(directory: DataDirectory, schedule: str | None, night: str | None) -> MorningReport:
    """Gather what the ledger and the store know of a night. Raises: UsageError naming what there is."""
    from fleet.cli.schedule import read_schedules
    from fleet.ledger.sqlite import Ledger
    from fleet.report.morning import NightFacts, morning_report

    state = _schedule(read_schedules(directory.root), schedule, directory)
    told = _night(state, night)
    earlier = [other for other in state.nights if other.began_s < told.began_s and other.study_id != told.study_id]
    before = earlier[-1] if earlier else None
    with Ledger(directory.root, read_only=True) as ledger:
        now = _report(ledger, told, directory)
        then = _report(ledger, before, directory) if before else None
        jobs = _jobs(ledger, state, told)
    facts = NightFacts(
        schedule=state.name,
        night=told.night,
        study=told.study_id,
        began_s=told.began_s,
        ended_s=told.ended_s,
        before_night=before.night if before else None,
    )
    return morning_report(facts, jobs, now, then)


def _schedule(states: tuple[ScheduleState, ...], name: str | None, directory: DataDirectory) -> ScheduleState:
    """The schedule of that name, removed ones too, or the one whose night began last."""
    begun = [state for state in states if state.nights]
    chosen = [state for state in begun if name in (None, state.name)]
    if chosen:
        return max(chosen, key=lambda state: state.nights[-1].began_s)
    if name is not None and any(state.name == name for state in states):
        raise UsageError(f"schedule {name!r}: none of its nights has begun", f"fleet schedule show {name}")
    there = ", ".join(sorted({state.name for state in begun}))
    raise UsageError(
        f"{directory.root}: no night of {'any schedule' if name is None else repr(name)} has begun",
        f"there are nights of: {there}" if there else "fleet schedule list",
    )


def _night(state: ScheduleState, night: str | None) -> Night:
    found = [other for other in state.nights if night in (None, other.night)]
    if not found:
        last = ", ".join(other.night for other in state.nights[-5:])
        raise UsageError(f"schedule {state.name!r}: no night began on {night!r}", f"the latest are: {last}")
    return found[-1]


def _report(ledger: Ledger, night: Night, directory: DataDirectory) -> HardwareReport | None:
    """The report of what a night's study had measured when the night ended; None when that is nothing."""
    from fleet.report.hardware import hardware_report
    from fleet.store.runs import RunStore

    state = _state(ledger, night.study_id, until_s=night.ended_s)
    if not state.done_attempts:
        return None
    tables = RunStore(directory.store).scan(night.study_id, state.done_attempts)
    return hardware_report(tables, study=night.study_id)


def _jobs(ledger: Ledger, state: ScheduleState, night: Night) -> list[JobFact]:
    """The jobs of the night's study, and those of earlier editions to which something happened in the night."""
    from fleet.cli.text import task_label
    from fleet.report.night_jobs import job_facts

    machines = ledger.machines()
    facts = []
    for study_id in state.editions()[: state.editions().index(night.study_id) + 1]:
        after = _state(ledger, study_id, until_s=night.ended_s)
        labels = {job: task_label(task) for job, task in after.tasks_of_jobs().items()}
        before = None if study_id == night.study_id else _state(ledger, study_id, until_s=night.began_s, closed=False)
        ended = night.ended_s is not None
        facts += job_facts(after, before=before, labels=labels, machines=machines, ended=ended)
    return facts


def _state(ledger: Ledger, study_id: StudyId, *, until_s: float | None, closed: bool = True) -> StudyState:
    """A study as it stood at a moment, with what was recorded at that very moment or, not `closed`, without it."""
    from fleet.ledger.state import fold

    records = ledger.records(study_id)
    if until_s is not None:
        records = [record for record in records if record.at_s < until_s or (closed and record.at_s == until_s)]
    return fold(study_id, records)
