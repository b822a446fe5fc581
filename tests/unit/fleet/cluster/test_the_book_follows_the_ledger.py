"""What anybody records is taken in event by event, and the waiting jobs are those that a fresh look would find."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cluster.book import Book
from fleet.cluster.submit_events import submission
from fleet.ledger.events import (
    AttemptCancelled,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    JobDropped,
    MachinePaused,
    StudyCancelled,
    StudyFinished,
    StudyPaused,
    StudyResumed,
)
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Cancelled, Planned, Retrying, is_open
from fleet.nodes.job import job_id
from fleet.nodes.node import NodeName
from fleet.study.study import Study
from worker.contract.task import CheckpointRef, Prompt, Task

MINI = NodeName("mini")
TASKS = tuple(
    Task(checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="a", category="c", text="t"),), verify_width=width)
    for width in (1, 2, 3)
)
STUDY = Study(name="s", description="", tasks=TASKS, path=Path("s.toml"))
OTHER = Study(name="other", description="", tasks=TASKS[:1], path=Path("o.toml"))
ATTEMPT = {"study_id": STUDY.id, "task_id": TASKS[0].id, "attempt_id": "x"}


def start(attempt: str = "x", number: int = 1) -> AttemptStarted:
    values = {**ATTEMPT, "attempt_id": attempt}
    return AttemptStarted(**values, number=number, node=MINI, build_hash="b")


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path) as opened:
        opened.append(*submission(STUDY, None))
        yield opened


def test_a_study_that_another_process_submits_is_found(ledger):
    book = Book(ledger)
    ledger.append(*submission(OTHER, None))
    assert set(book.studies) == {STUDY.id}
    book.catch_up()
    assert set(book.studies) == {STUDY.id, OTHER.id}
    assert len(list(book.waiting())) == 4
    assert len(list(book.waiting(only=OTHER.id))) == 1


def test_a_started_job_waits_no_more_and_one_that_is_tried_again_waits_until_its_time(ledger):
    book = Book(ledger)
    book.append(start())
    assert len(list(book.waiting())) == 2
    assert book.turns[MINI] == {STUDY.id: 1}
    failed = AttemptFailed(**ATTEMPT, kind="transient", error="E", message="m", hint="h", retry=True)
    book.append(failed, not_before_s=50.0)
    (again,) = [entry for entry in book.waiting() if entry.attempts == 1]
    assert (again.job, again.not_before_s) == (TASKS[0].id, 50.0)


def test_a_paused_study_waits_and_a_cancelled_one_does_not(ledger):
    book = Book(ledger)
    book.append(start())
    ledger.append(StudyPaused(study_id=STUDY.id, reason="r"))
    book.catch_up()
    assert list(book.waiting()) == []
    book.append(StudyResumed(study_id=STUDY.id))
    assert len(list(book.waiting())) == 2
    book.append(StudyCancelled(study_id=STUDY.id, reason="r"))
    assert list(book.waiting()) == []
    book.append(AttemptLost(**ATTEMPT, reason="gone", retry=True))
    assert list(book.waiting()) == []
    assert isinstance(book.study(STUDY.id).jobs[job_id(TASKS[0].id, None)], Cancelled)


def test_a_finished_study_is_forgotten_and_comes_back_when_it_is_submitted_again(ledger):
    book = Book(ledger)
    book.append(StudyFinished(study_id=STUDY.id, num_done=0, num_failed=0))
    book.forget_finished()
    assert book.studies == {}
    book.append(*submission(STUDY, ledger.state(STUDY.id)))
    assert set(book.studies) == {STUDY.id}


def test_what_was_recorded_of_machines_is_known_at_once_and_later(ledger):
    ledger.append(MachinePaused(machine=MINI, reason="in use"))
    book = Book(ledger)
    assert book.machines[MINI].paused == "in use"
    ledger.append(MachinePaused(machine=NodeName("late"), reason="why"))
    book.catch_up()
    assert book.machines[NodeName("late")].paused == "why"


MOVES = st.lists(st.sampled_from(["start", "fail", "lose", "give back", "drop", "cancel", "submit", "pause", "resume"]))


@settings(max_examples=40, deadline=None)
@given(MOVES)
def test_after_any_history_the_book_equals_a_fresh_one(tmp_path_factory, moves):
    with Ledger(tmp_path_factory.mktemp("book")) as ledger:
        ledger.append(*submission(STUDY, None))
        book, number = Book(ledger), 0
        for move in moves:
            number += move == "start"
            values = {**ATTEMPT, "attempt_id": str(number)}
            match move:
                case "start":
                    book.append(start(str(number), number))
                case "fail":
                    book.append(AttemptFailed(**values, kind="permanent", error="E", message="m", hint="", retry=False))
                case "lose":
                    book.append(AttemptLost(**values, reason="r", retry=True))
                case "give back":
                    book.append(AttemptCancelled(**values, reason="r", again=True))
                case "drop":
                    book.append(JobDropped(study_id=STUDY.id, task_id=TASKS[0].id, reason="r"))
                case "cancel":
                    book.append(StudyCancelled(study_id=STUDY.id, reason="r"))
                case "submit":
                    book.append(*submission(STUDY, ledger.state(STUDY.id)))
                case "pause":
                    book.append(StudyPaused(study_id=STUDY.id, reason="r"))
                case "resume":
                    book.append(StudyResumed(study_id=STUDY.id))
        fresh = Book(ledger)
        key = lambda entry: entry.job  # noqa: E731
        assert sorted(book.waiting(), key=key) == sorted(fresh.waiting(), key=key)
        state = book.study(STUDY.id)
        assert state == ledger.state(STUDY.id)
        waiting = {job for job, job_state in state.jobs.items() if isinstance(job_state, Planned | Retrying)}
        assert {entry.job for entry in book.waiting()} == (set() if state.paused else waiting)
        assert is_open(state) or not waiting
