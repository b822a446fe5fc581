"""`fleet demo`: the whole chain on the bundled model: study, tasks, Ray, benchmark, rows, report."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import CacheOption, DataDirectory, DataOption, LockOption, data_directory
from fleet.cli.report import Format, make_report, print_report, write_report
from fleet.cli.sites import find_site
from fleet.cli.submit import in_edition, raise_for_failures, run_study, worker_settings
from fleet.errors import TasksFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.ledger.state import StudyState
    from fleet.report.hardware import HardwareReport


def demo(
    *,
    again: Annotated[bool, typer.Option("--again", help="Measure everything anew, as a new study.")] = False,
    data: DataOption = None,
    cache: CacheOption = None,
    lock: LockOption = None,
) -> None:
    """Run the bundled study on this machine and print its report. Finished tasks are not measured twice."""
    from fleet.study.bundled import find_study
    from fleet.study.load import load_study

    directory = data_directory(data)
    study = in_edition(load_study(find_study("demo")), directory, again=again)
    go_on = "fleet demo" + (f" --data {shlex.quote(str(directory.root))}" if data else "")
    if _all_done(study.id, directory):
        typer.echo(f"every task of study {study.id} is done; {go_on} --again measures anew", err=True)
    state = run_study(
        study,
        find_site(None, directory, local=True),
        directory,
        worker_settings(directory, cache=cache, lock=lock),
        go_on=go_on,
    )
    if state.done_attempts:
        made = make_report(state, directory)
        print_report(made)
        _print_overhead(state, directory)
        _print_paths(made, directory)
        raise_for_failures(state)
        _raise_for_differences(made, state)
    raise_for_failures(state)


def _all_done(study_id: str, directory: DataDirectory) -> bool:
    from fleet.cli.lookup import known_studies
    from fleet.ledger.state import Done

    state = next((state for state in known_studies(directory) if state.study_id == study_id), None)
    return state is not None and len(state.jobs) > 0 and state.count(Done) == len(state.jobs)


def _print_overhead(state: StudyState, directory: DataDirectory) -> None:
    """What a task costs beside its measurements, over all tasks of the study."""
    from fleet.ledger.state import Done
    from fleet.store.runs import RunStore

    done = [task for task in state.jobs.values() if isinstance(task, Done)]
    runs = RunStore(directory.store).scan(state.study_id, state.done_attempts)["runs"]
    first_token: list[Any] = runs.column("start_to_first_token_s").to_pylist()
    typer.echo("")
    typer.echo(f"overhead of a task (median and maximum over {len(done)} tasks)")
    for what, values in (
        ("submit to process start", [task.submit_to_start_s for task in done]),
        ("process start to first token", _per_attempt(runs.column("attempt_id").to_pylist(), first_token)),
        ("last measurement to stored", [task.measured_to_stored_s for task in done]),
    ):
        typer.echo(f"  {what:<30} {_middle_and_most(values)}")


def _per_attempt(attempts: Sequence[str], values: Sequence[float | None]) -> list[float | None]:
    """The process starts once per attempt; its rows, one per prompt, all carry the same start."""
    found: dict[str, float | None] = {}
    for attempt, value in zip(attempts, values, strict=True):
        if value is not None:
            found[attempt] = min(value, found.get(attempt) or value)
    return list(found.values())


def _middle_and_most(values: Sequence[float | None]) -> str:
    from statistics import median

    known = [value for value in values if value is not None]
    return f"{median(known):7.2f} s {max(known):7.2f} s" if known else "not measured"


def _print_paths(made: HardwareReport, directory: DataDirectory) -> None:
    from worker.contract.private import own_directory

    folder = own_directory(directory.reports / made.study)
    typer.echo("")
    typer.echo(f"rows    {directory.store}")
    for name, format in (("report", Format.html), ("", Format.md), ("", Format.json)):  # noqa: A001
        path = folder / f"report.{format.value}"
        write_report(made, format, path)
        typer.echo(f"{name:<7} {path}")


def _raise_for_differences(made: HardwareReport, state: StudyState) -> None:
    """A row that is `wrong`, or was not judged, fails the demo; a `tie` or a `drift` is a GPU's result (METHODOLOGY.md).

    On the CPU backend, whose forwards are bit-equal at every width, the worker calls anything but `identical` wrong.
    """
    differing = [row for row in made.rows if row.figures.exactness not in ("identical", "tie", "drift")]
    if differing:
        raise TasksFailedError(
            f"{len(differing)} of {len(made.rows)} rows are wrong, or were not judged",
            "see the column exactness and the row's prompts in the report",
        )
    if len(made.rows) < len(state.jobs):
        raise TasksFailedError(f"the report has {len(made.rows)} rows for {len(state.jobs)} tasks", "fleet status demo")
