"""`fleet status [STUDY]`: what was asked, what is done, what runs, what failed and why."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import DataDirectory, DataOption, data_directory
from fleet.cli.submit import JsonOption
from fleet.cli.text import task_label

if TYPE_CHECKING:
    from fleet.ledger.state import JobState, StudyState
    from fleet.nodes.job import JobId
    from worker.contract.task import Task


def status(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="An id, a name or a study file.", show_default=False)
    ] = None,
    *,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the studies, or the tasks of one study."""
    from fleet.cli.lookup import find_submitted, known_studies

    directory = data_directory(data)
    states = known_studies(directory) if study is None else [find_submitted(study, directory)]
    if as_json:
        answer = [study_dict(state) for state in states]
        machines = machine_dicts(directory)
        now = {"machines": machines, "waits": _waits(directory)}
        whole = answer[0] | now if study else {"studies": answer} | now
        typer.echo(json.dumps(whole, ensure_ascii=False, indent=2))
    elif study is None:
        _print_studies(states, str(directory.root))
        _print_machines(directory, states)
    else:
        _print_tasks(states[0])


def _waits(directory: DataDirectory) -> dict[str, str]:
    """Why jobs of a study wait although a machine is free: a sentence per study."""
    from fleet.cluster.live import read_live

    live = read_live(directory.root)
    return dict(live.waits) if live else {}


def machine_dicts(directory: DataDirectory) -> list[dict[str, Any]]:
    """What each machine does now, or why it does nothing; none when no driver is at work."""
    import dataclasses

    from fleet.cluster.live import read_live

    live = read_live(directory.root)
    return [dataclasses.asdict(machine) for machine in live.machines] if live else []


def _print_machines(directory: DataDirectory, states: list[StudyState]) -> None:
    from fleet.cli.watch import machines_table
    from fleet.cluster.live import read_live

    live = read_live(directory.root)
    if live is not None:
        typer.echo("")
        _print(machines_table(live, states))


def study_dict(state: StudyState) -> dict[str, Any]:
    """A study's state as JSON: stable names, nothing rounded."""
    from fleet.ledger.state import Cancelled, Done, Failed, Running

    tasks = state.tasks_of_jobs()
    return {
        "study_id": state.study_id,
        "name": state.name,
        "submitted_at_s": state.submitted_at_s,
        "finished_at_s": state.finished_at_s,
        "paused": state.paused,
        "cancelled": state.cancelled,
        "num_tasks": len(state.jobs),
        "num_done": state.count(Done),
        "num_failed": state.count(Failed),
        "num_cancelled": state.count(Cancelled),
        "num_running": state.count(Running),
        "tasks": [_task_dict(job, tasks[job], job_state) for job, job_state in state.jobs.items()],
    }


def _task_dict(job: JobId, task: Task, state: JobState) -> dict[str, Any]:
    from fleet.nodes.job import job_parts

    target = job_parts(job)[1]
    return {
        "task_id": task.id,
        "target": target,
        "label": task_label(task),
        "state": type(state).__name__.lower(),
        "attempts": state.tries.started,
        "node": getattr(state, "node", None) or target,
        "attempt_id": getattr(state, "attempt_id", None),
        "error": getattr(state, "error", None),
        "message": getattr(state, "message", None) or getattr(state, "reason", None),
        "hint": getattr(state, "hint", None),
    }


def _print_studies(states: list[StudyState], root: str) -> None:
    from fleet.ledger.state import Done, Failed, Running

    if not states:
        typer.echo(f"no studies in {root}; fleet submit STUDY starts one")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("study", "tasks", "done", "failed", "running", "last change"):
        table.add_column(name, no_wrap=name == "study")
    for state in states:
        counts = (len(state.jobs), state.count(Done), state.count(Failed), state.count(Running))
        table.add_row(state.study_id, *map(str, counts), _local_time(state.changed_at_s))
    _print(table)


def _print_tasks(state: StudyState) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("task", "settings", "state", "attempts", "node", "message"):
        table.add_column(name, no_wrap=name == "task", overflow="fold")
    for task in study_dict(state)["tasks"]:
        table.add_row(*(str(task[name] or "") for name in ("task_id", "label", "state", "attempts", "node", "message")))
    typer.echo(f"study {state.study_id}, submitted {_local_time(state.submitted_at_s)}")
    _print(table)


def _print(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)


def _local_time(at_s: float | None) -> str:
    return "" if at_s is None else datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")
