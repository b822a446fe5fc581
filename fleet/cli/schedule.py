"""`fleet schedule`: which study runs in which window: add, list, show, remove. What drives the nights is `fleet serve`."""

from __future__ import annotations

import json
import math
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import DataDirectory, DataOption, data_directory
from fleet.cli.submit import JsonOption, StudyArgument
from fleet.errors import UsageError
from fleet.spans import parse_span, span

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.ledger.schedule_events import Repeat
    from fleet.ledger.schedule_state import Schedules, ScheduleState
    from fleet.study.study import StudyId

app = typer.Typer(no_args_is_help=True, help="Studies that run by night, or in any other window.", add_completion=False)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)]


@app.command()
def add(
    study: StudyArgument,
    *,
    window: Annotated[
        str, typer.Option(help="When it may run, such as 22:00-07:00; 00:00-24:00 is always.", show_default=False)
    ],
    days: Annotated[str, typer.Option(help="The days on which the window begins: mon-fri, sat,sun, ...")] = "mon-sun",
    timezone: Annotated[
        str, typer.Option(help="An IANA name, such as Europe/Berlin; local is this machine's.")
    ] = "local",
    repeat: Annotated[
        str, typer.Option(help="nightly: a new edition each night. once: until the study is done.")
    ] = "nightly",
    grace: Annotated[str, typer.Option(help="How long what runs at the end may still go on.")] = "30m",
    name: Annotated[str | None, typer.Option(help="Default: the study's name.", show_default=False)] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study in a window, night after night or once. fleet serve drives it."""
    from fleet.ledger.schedule_events import ScheduleAdded, ScheduleName
    from fleet.ledger.sqlite import record
    from fleet.nodes.window import parse_window
    from fleet.study.bundled import find_study
    from fleet.study.load import load_study

    directory = data_directory(data)
    path = find_study(study).expanduser().absolute()
    loaded = load_study(path)
    chosen = _checked_name(name or loaded.name, directory)
    parse_window(window, days=days, timezone=timezone)
    added = ScheduleAdded(
        schedule=ScheduleName(chosen),
        study_path=str(path),
        window=window,
        days=days,
        timezone=timezone,
        repeat=_checked_repeat(repeat),
        grace_s=parse_span(grace, name="--grace"),
    )
    record(directory.root, added)
    _print_one(_find(chosen, directory), directory, as_json=as_json)


@app.command("list")
def list_schedules(*, data: DataOption = None, as_json: JsonOption = False) -> None:
    """List the schedules with their next openings."""
    from fleet.ledger.schedule_state import active

    directory = data_directory(data)
    unfinished = _unfinished(directory)
    schedules = [schedule_dict(state, unfinished) for state in active(read_schedules(directory.root))]
    if as_json:
        typer.echo(json.dumps({"schedules": schedules}, ensure_ascii=False, indent=2))
    elif not schedules:
        typer.echo(f"no schedules in {directory.root}; fleet schedule add STUDY --window 22:00-07:00 adds one")
    else:
        _print_table(schedules)


@app.command()
def show(name: NameArgument, *, data: DataOption = None, as_json: JsonOption = False) -> None:
    """Show one schedule and its nights."""
    directory = data_directory(data)
    _print_one(_find(name, directory), directory, as_json=as_json)


@app.command()
def remove(name: NameArgument, *, data: DataOption = None) -> None:
    """Begin no more nights of it. What was submitted for it stays, and goes on in its window."""
    from fleet.ledger.schedule_events import ScheduleRemoved
    from fleet.ledger.sqlite import record

    directory = data_directory(data)
    state = _find(name, directory)
    record(directory.root, ScheduleRemoved(schedule=state.name))
    typer.echo(f"removed {state.name}; its {len(state.nights)} nights stay in the ledger")


def read_schedules(data: Path) -> Schedules:
    """Every schedule of a data directory, removed ones included; none where there is no ledger yet."""
    from fleet.ledger.sqlite import Ledger, ask_ledger

    return ask_ledger(data, Ledger.schedules, otherwise=())


def schedule_dict(state: ScheduleState, unfinished: set[StudyId], *, now_s: float | None = None) -> dict[str, Any]:
    """A schedule as JSON: stable names, nothing rounded. Units: seconds, moments since 1970."""
    from fleet.cluster.standing import standing

    now_s = time.time() if now_s is None else now_s
    found = standing(state, unfinished.__contains__)
    left_s = found.window.left_s(now_s)
    return {
        "schedule": state.name,
        "study_path": state.added.study_path,
        "window": state.added.window,
        "days": state.added.days,
        "timezone": state.added.timezone,
        "repeat": state.added.repeat,
        "grace_s": state.added.grace_s,
        "added_at_s": state.added_at_s,
        "state": "over" if found.is_over else "open" if left_s > 0 else "waiting",
        "left_s": None if math.isinf(left_s) else left_s,
        "next_open_s": None if found.is_over else found.window.next_open_s(now_s),
        "nights": [
            {"night": night.night, "study_id": night.study_id, "began_s": night.began_s, "ended_s": night.ended_s}
            for night in state.nights
        ],
    }


def _unfinished(directory: DataDirectory) -> set[StudyId]:
    from fleet.cli.lookup import known_studies
    from fleet.ledger.state import is_open

    return {state.study_id for state in known_studies(directory) if is_open(state)}


def _checked_name(name: str, directory: DataDirectory) -> str:
    """Raises: UsageError for a name that is taken, or that is none."""
    from fleet.ledger.schedule_state import active
    from fleet.study.study import NAME_PATTERN

    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"--name is {name!r}", "use at most 48 lower-case letters, digits, '.', '_' and '-', no space")
    if any(state.name == name for state in active(read_schedules(directory.root))):
        raise UsageError(
            f"there is a schedule {name!r} already", f"fleet schedule remove {name}, or choose another --name"
        )
    return name


def _checked_repeat(repeat: str) -> Repeat:
    allowed: dict[str, Repeat] = {"nightly": "nightly", "once": "once"}
    if repeat not in allowed:
        raise UsageError(f"--repeat is {repeat!r}", f"choose {' or '.join(allowed)}")
    return allowed[repeat]


def _find(name: str, directory: DataDirectory) -> ScheduleState:
    """Raises: UsageError naming the schedules that there are."""
    from fleet.ledger.schedule_state import active

    states = active(read_schedules(directory.root))
    for state in states:
        if state.name == name:
            return state
    there = ", ".join(state.name for state in states)
    raise UsageError(
        f"{directory.root}: there is no schedule {name!r}",
        f"there are: {there}" if there else "fleet schedule add STUDY --window 22:00-07:00 adds one",
    )


def next_words(next_open_s: float | None, *, state: str, left_s: float | None, now_s: float) -> str:
    """When it opens next, on this machine's clock: `today 22:00, in 3 h 20 min`."""
    if state == "over":
        return "never: its study is done"
    if state == "open":
        return f"open now, for {span(left_s)}" if left_s is not None else "always open"
    if next_open_s is None:
        return "never"
    opens, now = datetime.fromtimestamp(next_open_s).astimezone(), datetime.fromtimestamp(now_s).astimezone()
    days = (opens.date() - now.date()).days
    day = {0: "today", 1: "tomorrow"}.get(days, f"{opens:%A}" if days < 7 else f"{opens:%a %d %b}")
    return f"{day} {opens:%H:%M}, in {span(next_open_s - now_s)}"


def _next(schedule: dict[str, Any]) -> str:
    return next_words(schedule["next_open_s"], state=schedule["state"], left_s=schedule["left_s"], now_s=time.time())


def _print_one(state: ScheduleState, directory: DataDirectory, *, as_json: bool) -> None:
    schedule = schedule_dict(state, _unfinished(directory))
    if as_json:
        typer.echo(json.dumps(schedule, ensure_ascii=False, indent=2))
        return
    for key, value in (
        ("schedule", state.name),
        ("study", schedule["study_path"]),
        ("window", f"{schedule['window']} {schedule['days']} ({schedule['timezone']})"),
        ("repeat", schedule["repeat"]),
        ("grace", span(schedule["grace_s"])),
        ("next", _next(schedule)),
        *((f"night {night['night']}", night["study_id"]) for night in schedule["nights"]),
    ):
        typer.echo(f"{key:<16} {value}")


def _print_table(schedules: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from fleet.report.terminal import widened

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("schedule", "window", "days", "timezone", "repeat", "last night", "next"):
        table.add_column(name, no_wrap=name == "schedule", overflow="fold")
    for schedule in schedules:
        last = schedule["nights"][-1]["night"] if schedule["nights"] else "-"
        words = (schedule[name] for name in ("schedule", "window", "days", "timezone", "repeat"))
        table.add_row(*words, last, _next(schedule))
    widened(Console(highlight=False)).print(table)
