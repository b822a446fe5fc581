"""`fleet summary` over a real ledger and a real store, with nights whose events were recorded at chosen times."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from fleet.cli.data import DataDirectory
from fleet.cli.summary import make_morning
from fleet.errors import UsageError
from fleet.ledger.events import (
    AttemptCompleted,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    Event,
    MachinePaused,
    StudyCancelled,
    StudySubmitted,
    TaskPlanned,
)
from fleet.ledger.schedule_events import NightBegan, NightEnded, ScheduleAdded, ScheduleName
from fleet.ledger.sqlite import Ledger
from fleet.nodes.node import NodeName
from fleet.report.night_jobs import NOT_REACHED
from fleet.schedule.nights import TOO_SHORT
from fleet.store.runs import RunStore
from fleet.study.load import load_study
from fleet.study.study import Study
from tests.golden.mornings import STEADY
from tests.golden.study_tables import PromptSpec, RunSpec, study_tables
from tests.unit.fleet.cli.test_every_mistake_is_one_line_and_an_exit_code import expect, fleet, study

SPEED = ScheduleName("speed")
STUDIO, MINI = NodeName("studio-1"), NodeName("mini-2")
DAY, NIGHT_S = 86400.0, 9 * 3600.0
FIRST_S = 1_772_400_000.0


class _Site:
    """A data directory whose nights are written event by event."""

    def __init__(self, folder: Path) -> None:
        self.data = DataDirectory(root=folder / "data")
        self.study = load_study(study(folder, matrix="verify_width = [2, 3]"))
        self.record(
            FIRST_S - 60,
            ScheduleAdded(
                schedule=SPEED,
                study_path=str(self.study.path),
                window="22:00-07:00",
                days="mon-sun",
                timezone="UTC",
                repeat="nightly",
                grace_s=0.0,
            ),
        )

    def record(self, at_s: float, *events: Event) -> None:
        with Ledger(self.data.root) as ledger:
            ledger.append(*events, at_s=at_s)

    def begin(self, number: int, *give_up: Study) -> Study:
        edition = self.study.in_edition(number)
        self.record(
            FIRST_S + (number - 1) * DAY,
            *(StudyCancelled(study_id=old.id, reason=TOO_SHORT) for old in give_up),
            StudySubmitted(study_id=edition.id, name=edition.name, study=edition.to_json()),
            *(
                TaskPlanned(study_id=edition.id, task_id=task.id, position=n, target=machine)
                for n, task in enumerate(edition.tasks)
                for machine in (STUDIO, MINI)
            ),
            NightBegan(schedule=SPEED, night=f"2026-03-0{number}", study_id=edition.id),
        )
        return edition

    def end(self, number: int) -> None:
        self.record(FIRST_S + (number - 1) * DAY + NIGHT_S, NightEnded(schedule=SPEED, night=f"2026-03-0{number}"))

    def run(self, edition: Study, index: int, node: NodeName, at_s: float, prompt: PromptSpec = STEADY) -> None:
        task, attempt = edition.tasks[index], f"{node}-{index}-{at_s:.0f}"
        keys = {"study_id": edition.id, "task_id": task.id, "attempt_id": attempt}
        self.record(at_s, self._started(keys, node))
        tables = study_tables(RunSpec(node=node, verify_width=task.verify_width, prompts=(prompt,)))
        RunStore(self.data.store).append(
            {name: _owned(table, keys) for name, table in tables.items()},
            study_id=edition.id,
            task_id=task.id,
            attempt_id=attempt,
        )
        self.record(at_s + 60, AttemptCompleted(**keys, rows={"runs": 1}, target=node))

    def lose(self, edition: Study, index: int, node: NodeName, at_s: float, *, retry: bool) -> None:
        keys = {"study_id": edition.id, "task_id": edition.tasks[index].id, "attempt_id": f"lost-{at_s:.0f}"}
        lost = AttemptLost(**keys, reason="no sign of life", retry=retry, target=node)
        self.record(at_s, self._started(keys, node), lost)

    def fail(self, edition: Study, index: int, node: NodeName, at_s: float) -> None:
        keys = {"study_id": edition.id, "task_id": edition.tasks[index].id, "attempt_id": f"failed-{at_s:.0f}"}
        failed = AttemptFailed(
            **keys, kind="permanent", error="E", message="layer 3", hint="", retry=False, target=node
        )
        self.record(at_s, self._started(keys, node), failed)

    def _started(self, keys, node: NodeName) -> AttemptStarted:
        return AttemptStarted(**keys, number=1, node=node, build_hash="b" * 16, target=node)


def _owned(table: pa.Table, keys: dict[str, str]) -> pa.Table:
    for name, value in keys.items():
        column = pa.array([value] * table.num_rows, type=table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def told(site: _Site, night: str | None = None) -> list[tuple[str | None, str, str, str]]:
    report = make_morning(site.data, None, night)
    return [(job.machine, job.label.split(",")[0], job.end, job.reason) for job in report.jobs]


@pytest.fixture
def site(tmp_path: Path) -> _Site:
    return _Site(tmp_path)


def test_a_night_is_told_as_it_stood_when_it_ended_not_as_it_stands_now(site: _Site) -> None:
    first = site.begin(1)
    site.run(first, 0, STUDIO, FIRST_S + 600)
    site.fail(first, 1, STUDIO, FIRST_S + 900)
    site.lose(first, 0, MINI, FIRST_S + 900, retry=False)
    site.end(1)
    site.begin(2)
    site.run(first, 1, MINI, FIRST_S + DAY + 600)
    assert told(site, "2026-03-01") == [
        (STUDIO, "width 2", "done", ""),
        (MINI, "width 2", "lost", "no sign of life"),
        (STUDIO, "width 3", "failed", "layer 3"),
        (MINI, "width 3", "postponed", NOT_REACHED),
    ]


def test_what_an_earlier_edition_ran_or_gave_up_in_the_night_is_told_with_it(site: _Site) -> None:
    first = site.begin(1)
    site.end(1)
    second = site.begin(2)
    site.run(first, 0, STUDIO, FIRST_S + DAY + 600)
    site.end(2)
    third = site.begin(3, first)
    site.end(3)
    carried = [job for job in make_morning(site.data, "speed", "2026-03-02").jobs if job.carried]
    assert [(job.machine, job.end) for job in carried] == [(STUDIO, "done")]
    given_up = [job for job in make_morning(site.data, "speed", None).jobs if job.carried]
    assert {(job.end, job.reason) for job in given_up} == {("cancelled", TOO_SHORT)}
    assert len(given_up) == 3
    assert make_morning(site.data, "speed", None).facts.study == third.id
    assert make_morning(site.data, "speed", None).facts.before_night == "2026-03-02"
    assert second.id != third.id


def test_a_machine_that_took_nothing_is_told_with_its_reason(site: _Site) -> None:
    first = site.begin(1)
    site.record(FIRST_S + 1, MachinePaused(machine=MINI, reason="it is being repaired"))
    site.lose(first, 0, STUDIO, FIRST_S + 900, retry=True)
    assert ("studio-1", "width 2", "waiting", "no sign of life") in told(site)
    site.end(1)
    assert ("studio-1", "width 2", "postponed", "no sign of life") in told(site)
    assert ("mini-2", "width 3", "postponed", "the machine is paused: it is being repaired") in told(site)


def test_rates_are_compared_with_the_last_other_edition(site: _Site) -> None:
    first = site.begin(1)
    site.run(first, 0, STUDIO, FIRST_S + 600)
    site.end(1)
    assert make_morning(site.data, None, None).facts.before_night is None
    second = site.begin(2)
    slow = dataclasses.replace(STEADY, speculative_s=(3.6, 3.61, 3.59))
    site.run(second, 0, STUDIO, FIRST_S + DAY + 600, slow)
    site.end(2)
    (line,) = make_morning(site.data, None, None).changes
    assert (line.change.greedy.verdict, line.change.speculative.verdict) == ("same", "slower")
    (alone,) = make_morning(site.data, None, "2026-03-01").changes
    assert alone.change.is_new


def test_a_study_that_goes_on_is_not_compared_with_itself(site: _Site) -> None:
    first = site.begin(1)
    site.end(1)
    site.record(FIRST_S + DAY, NightBegan(schedule=SPEED, night="2026-03-02", study_id=first.id))
    assert make_morning(site.data, None, None).facts.before_night is None


def test_the_command_prints_text_or_writes_a_page(site: _Site, tmp_path: Path) -> None:
    first = site.begin(1)
    site.run(first, 0, STUDIO, FIRST_S + 600)
    data, page = ("--data", str(site.data.root)), tmp_path / "out" / "night.html"
    printed = fleet("summary", "speed", *data)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.splitlines()[:2] == ["speed, night of 2026-03-01", "1 of 4 jobs ran; 3 waiting."]
    written = fleet("summary", "--html", str(page), *data)
    assert written.stdout.strip() == str(page)
    assert "<h1>speed, night of 2026-03-01</h1>" in page.read_text(encoding="utf-8")
    assert [path.name for path in page.parent.iterdir()] == ["night.html"]


def test_what_does_not_exist_is_named_with_what_does(site: _Site, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of its nights has begun"):
        make_morning(site.data, "speed", None)
    site.begin(1)
    with pytest.raises(UsageError, match="there are nights of: speed"):
        make_morning(site.data, "other", None)
    with pytest.raises(UsageError, match="the latest are: 2026-03-01"):
        make_morning(site.data, "speed", "2026-03-09")
    expect(fleet("summary", "--data", str(tmp_path / "none")), 2, "no night of any schedule", "fleet schedule list")
    expect(fleet("summary", "--html", "/proc/x/y.html", "--data", str(site.data.root)), 2, "/proc/x/y.html")
