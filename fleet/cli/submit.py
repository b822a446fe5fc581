"""`fleet submit STUDY`: run what is missing of a study, then say what is done and what failed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import CacheOption, DataDirectory, DataOption, InventoryOption, LockOption, data_directory
from fleet.cli.text import task_label
from fleet.errors import InterruptedStudyError, TasksFailedError

if TYPE_CHECKING:
    from fleet.cluster.orders import Settings
    from fleet.cluster.site import Site
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
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the end, or only ask for it: fleet serve runs it.")
    ] = True,
    local: Annotated[bool, typer.Option("--local", help="Run on this machine, whatever the inventory names.")] = False,
    inventory: InventoryOption = None,
    data: DataOption = None,
    cache: CacheOption = None,
    lock: LockOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study on the inventory's machines, or on this one. What is done stays done; what failed runs again."""
    from fleet.cli.sites import find_site
    from fleet.cluster.submit import enqueue
    from fleet.study.bundled import find_study
    from fleet.study.load import load_study

    directory = data_directory(data)
    asked = in_edition(load_study(find_study(study)), directory, again=again)
    site = find_site(inventory, directory, local=local)
    if dry_run:
        _print_plan(asked, site, directory, as_json=as_json)
        return
    if not wait:
        enqueue(asked, data=directory.root, site=site)
        typer.echo(f"study {asked.id} is queued")
        typer.echo(
            "next: fleet serve runs it, fleet watch shows it" if not is_served(directory) else "next: fleet watch"
        )
        return
    settings = worker_settings(directory, cache=cache, lock=lock)
    go_on = f"fleet submit {shlex.quote(study)}" + (f" --data {shlex.quote(str(directory.root))}" if data else "")
    state = run_study(asked, site, directory, settings, go_on=go_on)
    _print_summary(state, directory, as_json=as_json)
    raise_for_failures(state)


def in_edition(study: Study, directory: DataDirectory, *, again: bool) -> Study:
    """The study's latest edition, or the one after it."""
    from fleet.cli.lookup import known_studies
    from fleet.cluster.submit_events import latest_edition, next_edition

    known = {state.study_id for state in known_studies(directory)}
    return next_edition(study, known) if again else latest_edition(study, known)


def is_served(directory: DataDirectory) -> bool:
    """Whether a driver is at work that takes up any study."""
    from fleet.cluster.live import read_live

    live = read_live(directory.root)
    return live is not None and live.serves


def run_study(study: Study, site: Site, directory: DataDirectory, settings: Settings, *, go_on: str) -> StudyState:
    """Submit and watch: as the driver, or beside the one that serves this data directory.

    Raises: InterruptedStudyError that says how to go on, and whatever submitting raises.
    """
    from rich.console import Console

    from fleet.cli.progress import watching
    from fleet.cluster.follow import follow
    from fleet.cluster.submit import enqueue
    from fleet.cluster.submit import submit as submit_study

    served = is_served(directory)
    try:
        with watching(Console(stderr=True)) as watcher:
            if served:
                enqueue(study, data=directory.root, site=site)
                return follow(directory.root, study.id, watcher)
            return submit_study(study, data=directory.root, site=site, settings=settings, watcher=watcher)
    except (InterruptedStudyError, KeyboardInterrupt):
        if served:
            raise InterruptedStudyError(f"detached; study {study.id} goes on", "fleet watch shows it") from None
        raise InterruptedStudyError("stopped; what is done stays done", f"go on with: {go_on}") from None


def worker_settings(directory: DataDirectory, *, cache: Path | None, lock: Path | None) -> Settings:
    """How this machine's worker is started: the one of this very installation."""
    from fleet.cluster.orders import Settings

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


def _print_plan(study: Study, site: Site, directory: DataDirectory, *, as_json: bool) -> None:
    from fleet.cli.lookup import known_studies
    from fleet.ledger.sqlite import known_machines
    from fleet.ledger.state import Done
    from fleet.nodes.job import job_id
    from fleet.schedule.plan import interleaved

    study, targets = site.ask(study, known_machines(directory.root))
    known = {state.study_id: state for state in known_studies(directory)}
    jobs = known[study.id].jobs if study.id in known else {}
    here = site.nodes()[0].name if len(site.nodes()) == 1 else "any"
    entries: list[dict[str, Any]] = [
        {
            "task_id": task.id,
            "label": task_label(task),
            "machine": target or here,
            "state": "done" if isinstance(jobs.get(job_id(task.id, target)), Done) else "to run",
        }
        for task in (study.tasks[index] for index in interleaved(len(study.tasks)))
        for target in targets[task.id]
    ]
    if as_json:
        typer.echo(json.dumps({"study_id": study.id, "tasks": entries}, ensure_ascii=False, indent=2))
        return
    protocol, machines = study.tasks[0].protocol, sorted({entry["machine"] for entry in entries})
    typer.echo(
        f"study {study.id}: {len(entries)} tasks on {', '.join(machines)}, "
        f"checkpoint {study.tasks[0].checkpoint.source}"
    )
    typer.echo(
        f"each: {len(study.tasks[0].prompts)} prompts x {protocol.repeats} repeats of both paths, "
        f"{protocol.max_tokens} tokens, order {protocol.order}"
    )
    for entry in entries:
        where = f" on {entry['machine']}" if len(machines) > 1 else ""
        typer.echo(f"  {entry['task_id']}  {entry['label']}{where}: {entry['state']}")


def _print_summary(state: StudyState, directory: DataDirectory, *, as_json: bool) -> None:
    from fleet.cli.status import study_dict
    from fleet.ledger.state import Cancelled, Done, Failed

    if as_json:
        typer.echo(json.dumps(study_dict(state), ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"study {state.study_id}: {state.count(Done)} of {len(state.jobs)} tasks done, {state.count(Failed)} failed"
        + (f", {state.count(Cancelled)} cancelled" if state.count(Cancelled) else "")
    )
    typer.echo(f"rows: {directory.store}")
    typer.echo(f"next: fleet report {state.study_id}")
