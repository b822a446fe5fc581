"""`fleet submit STUDY`: run what is missing of a study, then say what is done and what failed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import CacheOption, DataDirectory, DataOption, LockOption, data_directory
from fleet.cli.text import task_label
from fleet.errors import InterruptedStudyError, TasksFailedError

if TYPE_CHECKING:
    from fleet.cluster.dispatch import Settings
    from fleet.ledger.state import StudyState
    from fleet.study.study import Study

StudyArgument = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study file (.toml), or the name of a bundled study.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def submit(
    study: StudyArgument,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all and print the plan; run nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure everything anew, as a new study.")] = False,
    data: DataOption = None,
    cache: CacheOption = None,
    lock: LockOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study on this machine. What is done stays done; what failed or was interrupted runs now."""
    from fleet.study.bundled import find_study
    from fleet.study.load import load_study

    directory = data_directory(data)
    asked = in_edition(load_study(find_study(study)), directory, again=again)
    if dry_run:
        _print_plan(asked, directory, as_json=as_json)
        return
    settings = worker_settings(directory, cache=cache, lock=lock)
    go_on = f"fleet submit {shlex.quote(study)}" + (f" --data {shlex.quote(str(directory.root))}" if data else "")
    state = run_study(asked, directory, settings, go_on=go_on)
    _print_summary(state, directory, as_json=as_json)
    raise_for_failures(state)


def in_edition(study: Study, directory: DataDirectory, *, again: bool) -> Study:
    """The study's latest edition, or the one after it."""
    from fleet.cli.lookup import known_studies

    known = {state.study_id for state in known_studies(directory)}
    edition = 1
    while study.in_edition(edition + 1).id in known:
        edition += 1
    return study.in_edition(edition + 1 if again and study.id in known else edition)


def run_study(study: Study, directory: DataDirectory, settings: Settings, *, go_on: str) -> StudyState:
    """Submit and watch. Raises: InterruptedStudyError that says how to go on, and whatever submitting raises."""
    from rich.console import Console

    from fleet.cli.progress import watching
    from fleet.cluster.site import ThisMachine
    from fleet.cluster.submit import submit as submit_study
    from fleet.nodes.node import this_machine

    try:
        with watching(Console(stderr=True)) as watcher:
            return submit_study(
                study, data=directory.root, site=ThisMachine(this_machine()), settings=settings, watcher=watcher
            )
    except InterruptedStudyError:
        raise InterruptedStudyError("stopped; what is done stays done", f"go on with: {go_on}") from None


def worker_settings(directory: DataDirectory, *, cache: Path | None, lock: Path | None) -> Settings:
    """How this machine's worker is started: the one of this very installation."""
    from fleet.cluster.dispatch import Settings

    return Settings(
        spool=directory.spool,
        logs=directory.logs,
        cache=None if cache is None else cache.expanduser().absolute(),
        lock=None if lock is None else lock.expanduser().absolute(),
    )


def raise_for_failures(state: StudyState) -> None:
    """Raises: TasksFailedError naming the first failure when there is one."""
    from fleet.ledger.state import Failed

    failures = [task for task in state.jobs.values() if isinstance(task, Failed)]
    if failures:
        first = failures[0]
        rest = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise TasksFailedError(
            f"{len(failures)} of {len(state.jobs)} tasks failed: {first.message}{rest}",
            first.hint or f"fleet status {state.study_id}",
        )


def _print_plan(study: Study, directory: DataDirectory, *, as_json: bool) -> None:
    from fleet.cli.lookup import known_studies
    from fleet.cluster.site import ThisMachine
    from fleet.ledger.state import Done
    from fleet.nodes.job import job_id
    from fleet.nodes.node import this_machine
    from fleet.schedule.plan import interleaved

    node = this_machine()
    ThisMachine(node).targets(study, {})
    known = {state.study_id: state for state in known_studies(directory)}
    jobs = known[study.id].jobs if study.id in known else {}
    entries: list[dict[str, Any]] = [
        {
            "task_id": task.id,
            "label": task_label(task),
            "machine": node.name,
            "state": "done" if isinstance(jobs.get(job_id(task.id, None)), Done) else "to run",
        }
        for task in (study.tasks[index] for index in interleaved(len(study.tasks)))
    ]
    if as_json:
        typer.echo(json.dumps({"study_id": study.id, "tasks": entries}, ensure_ascii=False, indent=2))
        return
    protocol = study.tasks[0].protocol
    typer.echo(f"study {study.id}: {len(entries)} tasks on {node.name}, checkpoint {study.tasks[0].checkpoint.source}")
    typer.echo(
        f"each: {len(study.tasks[0].prompts)} prompts x {protocol.repeats} repeats of both paths, "
        f"{protocol.max_tokens} tokens, order {protocol.order}"
    )
    for entry in entries:
        typer.echo(f"  {entry['task_id']}  {entry['label']}: {entry['state']}")


def _print_summary(state: StudyState, directory: DataDirectory, *, as_json: bool) -> None:
    from fleet.cli.status import study_dict
    from fleet.ledger.state import Done, Failed

    if as_json:
        typer.echo(json.dumps(study_dict(state), ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"study {state.study_id}: {state.count(Done)} of {len(state.jobs)} tasks done, {state.count(Failed)} failed"
    )
    typer.echo(f"rows: {directory.store}")
    typer.echo(f"next: fleet report {state.study_id}")
