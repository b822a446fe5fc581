"""The night shift on a real ledger and a clock of the test's own: editions, what carries over, what starts, what is ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.cluster.book import Book
from fleet.cluster.night_shift import NightShift
from fleet.ledger.events import AttemptCompleted, AttemptStarted, StudySubmitted
from fleet.ledger.schedule_events import NightBegan, NightEnded, ScheduleAdded, ScheduleName
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Cancelled, Planned
from fleet.nodes.node import Node, NodeName
from fleet.schedule.gates import Gates
from fleet.schedule.nights import TOO_SHORT

NAME = ScheduleName("nightly-demo")
MINI = Node(name=NodeName("mini"))
HOUR = 3600.0
STUDY = """
name = "nightly"
machines = "any"
[checkpoint]
source = "demo"
[prompts]
file = "prompts.jsonl"
[matrix]
verify_width = [2, 3]
"""


def at(day: int, hour: float) -> float:
    return datetime(2026, 3, day, tzinfo=UTC).timestamp() + hour * HOUR


class Head:
    """A ledger, a book and a night shift, restarted at will."""

    def __init__(self, data: Path) -> None:
        self.data, self.now, self.said = data, at(1, 12), []
        (data / "prompts.jsonl").write_text('{"id": "p", "category": "c", "text": "t"}\n')
        self.file = data / "study.toml"
        self.file.write_text(STUDY)
        self.ledger = Ledger(data)
        self.start()

    def start(self) -> None:
        self.book = Book(self.ledger)
        self.shift = NightShift(
            book=self.book,
            ledger=self.ledger,
            ask=lambda study: (study, {}),
            clock=lambda: self.now,
            say=self.said.append,
        )

    def add(self, **changes) -> None:
        values = {
            "schedule": NAME,
            "study_path": str(self.file),
            "window": "22:00-07:00",
            "days": "mon-sun",
            "timezone": "UTC",
            "repeat": "nightly",
            "grace_s": 1800.0,
        }
        self.book.append(ScheduleAdded(**{**values, **changes}))

    def look(self, day: int, hour: float) -> list:
        """The events that a look at this time records."""
        self.now = at(day, hour)
        before = self.ledger.last_seq()
        self.shift.begin_and_end()
        return [record.event for record in self.ledger.since(before)]

    def work(self, count: int, took_s: float = 60.0) -> None:
        """Complete so many waiting jobs, in order."""
        for index, waiting in enumerate(list(self.book.waiting())[:count]):
            values = {"study_id": waiting.study_id, "task_id": waiting.job, "attempt_id": f"{waiting.job}-{index}"}
            self.ledger.append(AttemptStarted(**values, number=1, node="mini", build_hash="b"), at_s=self.now)
            self.ledger.append(AttemptCompleted(**values, rows={"runs": 1}), at_s=self.now + took_s)
        self.book.catch_up()


@pytest.fixture
def head(tmp_path):
    head = Head(tmp_path)
    yield head
    head.ledger.__exit__()


def kinds(events: list) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_night_submits_an_edition_once_also_when_the_head_comes_back_in_its_middle(head):
    head.add()
    assert head.look(1, 21) == []
    assert kinds(head.look(1, 22)) == ["StudySubmitted", "TaskPlanned", "TaskPlanned", "NightBegan"]
    assert head.look(1, 23) == []
    head.start()
    assert head.look(2, 3) == []
    assert head.look(2, 7.4) == []  # the grace
    assert head.look(2, 7.5) == [NightEnded(schedule=NAME, night="2026-03-01")]


def test_the_next_night_is_the_next_edition_and_what_two_nights_did_not_finish_is_given_up(head):
    head.add()
    first = next(event for event in head.look(1, 22) if isinstance(event, NightBegan)).study_id
    head.work(1)
    second = next(event for event in head.look(2, 22) if isinstance(event, NightBegan)).study_id
    assert second == f"{first}-2"
    assert len(list(head.book.waiting())) == 3
    head.look(3, 22)
    left = [state for state in head.book.study(first).jobs.values() if isinstance(state, Cancelled)]
    assert [state.reason for state in left] == [TOO_SHORT]
    assert head.book.study(second).count(Planned) == 2


def test_missed_nights_are_caught_up_by_one_edition(head):
    head.add()
    head.look(1, 22)
    head.work(2)
    head.start()
    events = head.look(20, 23)
    assert kinds(events) == ["NightEnded", "StudySubmitted", "TaskPlanned", "TaskPlanned", "NightBegan"]


def test_once_goes_on_with_the_same_study_until_it_is_done(head):
    head.add(repeat="once")
    first = next(event for event in head.look(1, 22) if isinstance(event, NightBegan)).study_id
    head.work(1)
    events = head.look(2, 22)
    assert NightBegan(schedule=NAME, night="2026-03-02", study_id=first) in events
    assert "TaskPlanned" not in kinds(events)
    head.work(1)
    assert kinds(head.look(3, 22)) == ["NightEnded"]


def test_a_study_file_that_cannot_be_read_begins_no_night_and_is_told_once(head):
    head.add()
    head.file.write_text("name = 1")
    assert head.look(1, 22) == []
    assert head.look(1, 23) == []
    assert len(head.said) == 1
    assert "study.toml" in head.said[0]
    head.file.write_text(STUDY)
    assert "NightBegan" in kinds(head.look(2, 1))


def test_a_job_starts_only_when_what_it_took_before_fits_the_rest_of_the_window(head):
    head.add()
    head.look(1, 22)
    head.work(1, took_s=2 * HOUR)  # expected: a quarter more
    (waiting,) = head.book.waiting()
    head.now = at(2, 4.4)
    assert head.shift.may_start(waiting, MINI)
    head.now = at(2, 4.6)
    assert not head.shift.may_start(waiting, MINI)
    assert "2 h 30 min" in head.shift.postponed[waiting.study_id]
    head.start()  # the history is in the ledger
    assert not head.shift.may_start(waiting, MINI)
    head.now = at(2, 22)
    assert head.shift.may_start(waiting, MINI)


def test_a_machines_own_window_holds_for_every_study(head):
    head.book.append(StudySubmitted(study_id="s", name="s", study=json.dumps({"tasks": []})))  # type: ignore[arg-type]
    early = Node(name=NodeName("mini"), window="20:00-23:00", timezone="UTC")
    head.add()
    head.look(1, 22)
    waiting = next(iter(head.book.waiting()))
    head.work(1)
    head.now = at(2, 1)
    assert head.shift.may_start(waiting, MINI)
    assert not head.shift.may_start(waiting, early)


def test_what_runs_at_the_end_may_finish_within_the_grace(head):
    head.add()
    head.look(1, 22)
    study = next(iter(head.book.studies))
    started_s = at(2, 6)
    head.now = at(2, 7.4)
    assert head.shift.overran(study, MINI, started_s) is None
    head.now = at(2, 7.6)
    reason = head.shift.overran(study, MINI, started_s)
    assert reason is not None
    assert "queued for the next night" in reason


def test_nights_ask_for_gates_and_a_study_may_ask_for_others(head):
    head.add()
    head.look(1, 22)
    assert head.shift.gates(next(iter(head.book.studies))) == Gates()
    head.file.write_text(STUDY.replace('"nightly"', '"other"') + "[gates]\nuser_idle_s = 600.0\nquiet = false\n")
    head.add(schedule=ScheduleName("other"))
    other = next(event for event in head.look(2, 3) if isinstance(event, NightBegan)).study_id
    assert head.shift.gates(other) == Gates(quiet=False, user_idle_s=600.0)
    asked_now = StudySubmitted(study_id="now", name="now", study=json.dumps({"tasks": []}))  # type: ignore[arg-type]
    head.book.append(asked_now)
    assert head.shift.gates(asked_now.study_id) is None
