"""Each task is in one state, late events change nothing, and the counts that the retry policy needs are right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.ledger.events import (
    AttemptCancelled,
    AttemptCompleted,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    Event,
    Recorded,
    StudyCancelled,
    StudyFinished,
    StudyPaused,
    StudyResumed,
    StudySubmitted,
    TaskPlanned,
    event_from_json,
    event_to_json,
)
from fleet.ledger.state import (
    Cancelled,
    Done,
    Failed,
    Planned,
    Retrying,
    Running,
    StudyState,
    Tries,
    fold,
    is_open,
)
from fleet.nodes.job import job_id
from fleet.nodes.node import NodeName
from fleet.study.study import Study
from worker.contract.errors import FailureKind
from worker.contract.task import CheckpointRef, Prompt, Task

TASK = Task(checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="a", category="c", text="t"),))
STUDY = Study(name="s", description="", tasks=(TASK,), path=Path("s.toml"))
S, T = STUDY.id, TASK.id
J = job_id(T, None)

SUBMITTED = StudySubmitted(study_id=S, name="s", study=STUDY.to_json())
PLANNED = TaskPlanned(study_id=S, task_id=T, position=0)


def started(attempt: str, number: int = 1) -> AttemptStarted:
    return AttemptStarted(study_id=S, task_id=T, attempt_id=attempt, number=number, node="mac", build_hash="b")


def completed(attempt: str) -> AttemptCompleted:
    return AttemptCompleted(study_id=S, task_id=T, attempt_id=attempt, rows={"runs": 1}, submit_to_start_s=0.5)


def failed(attempt: str, *, kind: FailureKind = "transient", retry: bool = True) -> AttemptFailed:
    return AttemptFailed(
        study_id=S, task_id=T, attempt_id=attempt, kind=kind, error="E", message="m", hint="h", retry=retry
    )


def lost(attempt: str, *, retry: bool = True, counted: bool = True) -> AttemptLost:
    return AttemptLost(study_id=S, task_id=T, attempt_id=attempt, reason="gone", retry=retry, counted=counted)


def state_after(*events: Event) -> StudyState:
    return fold(
        S, [Recorded(seq=i, at_s=100.0 + i, event=event) for i, event in enumerate((SUBMITTED, PLANNED, *events))]
    )


def test_from_planned_over_running_to_done():
    assert state_after().jobs[J] == Planned()
    assert state_after(started("x")).jobs[J] == Running(
        tries=Tries(started=1), attempt_id="x", node="mac", since_s=102.0
    )
    done = state_after(started("x"), completed("x"))
    assert isinstance(done.jobs[J], Done)
    assert done.done_attempts == ("x",)
    assert (done.count(Done), done.count(Failed, Running)) == (1, 0)


def test_failures_are_counted_by_kind():
    state = state_after(
        started("x"), failed("x"), started("y", 2), lost("y"), started("z", 3), failed("z", kind="lost")
    )
    assert state.jobs[J] == Retrying(tries=Tries(started=3, transient=1, lost=2), reason="m")


def test_a_loss_that_is_nobodys_fault_is_not_counted():
    assert state_after(started("x"), lost("x", counted=False)).jobs[J].tries == Tries(started=1, lost=0)


def test_giving_up_keeps_the_reason_and_planning_again_forgets_the_counts():
    state = state_after(started("x"), failed("x", kind="permanent", retry=False))
    assert state.jobs[J] == Failed(tries=Tries(started=1), kind="permanent", error="E", message="m", hint="h")
    again = state_after(started("x"), failed("x", retry=False), PLANNED)
    assert again.jobs[J] == Planned(tries=Tries(started=1))


@pytest.mark.parametrize("late", [completed("old"), failed("old"), lost("old")])
def test_what_an_attempt_says_that_is_over_changes_nothing(late):
    before = state_after(started("old"), lost("old"), started("new", 2))
    after = state_after(started("old"), lost("old"), started("new", 2), late)
    assert after.jobs == before.jobs


@pytest.mark.parametrize("event", [PLANNED, started("y", 2), failed("x"), lost("x"), completed("y")])
def test_what_is_done_stays_done(event):
    done = state_after(started("x"), completed("x"))
    assert state_after(started("x"), completed("x"), event).jobs == done.jobs


def test_submitting_again_opens_a_finished_study():
    finished = StudyFinished(study_id=S, num_done=1, num_failed=0)
    assert state_after(started("x"), completed("x"), finished).finished_at_s == 104.0
    assert state_after(started("x"), completed("x"), finished, SUBMITTED).finished_at_s is None


def test_the_tasks_come_back_as_they_were_submitted():
    assert state_after().definitions() == {T: TASK}


@pytest.mark.parametrize(
    "event", [SUBMITTED, PLANNED, started("x"), completed("x"), failed("x"), lost("x")], ids=lambda e: type(e).__name__
)
def test_events_survive_their_json(event):
    assert event_from_json(*event_to_json(event)) == event


def test_an_event_of_another_build_is_refused_by_name():
    with pytest.raises(ValueError, match="TaskPostponed"):
        event_from_json("TaskPostponed", "{}")
    with pytest.raises(ValueError, match="TaskPlanned"):
        event_from_json("TaskPlanned", json.dumps({"colour": "red"}))
    assert replace(PLANNED, position=1) != PLANNED


def test_a_job_for_one_machine_is_another_job_than_the_same_task_for_any():
    mine = replace(PLANNED, target=NodeName("mac"))
    state = fold(S, [Recorded(seq=i, at_s=1.0, event=event) for i, event in enumerate((SUBMITTED, PLANNED, mine))])
    assert state.jobs == {J: Planned(), job_id(T, NodeName("mac")): Planned()}
    state.apply(replace(started("x"), target=NodeName("mac")), at_s=2.0)
    assert isinstance(state.jobs[J], Planned)
    assert isinstance(state.jobs[job_id(T, NodeName("mac"))], Running)


def test_a_cancelled_study_runs_nothing_more_until_it_is_submitted_again():
    other = replace(PLANNED, target=NodeName("mac"))
    cancelled = StudyCancelled(study_id=S, reason="no need")
    state = state_after(other, started("x"), cancelled)
    assert state.cancelled == "no need"
    assert isinstance(state.jobs[J], Running)  # the driver ends it and says so
    assert state.jobs[job_id(T, NodeName("mac"))] == Cancelled(tries=Tries(), reason="no need")
    ended = AttemptCancelled(study_id=S, task_id=T, attempt_id="x", reason="no need", again=False)
    state.apply(ended, at_s=1.0)
    assert state.jobs[J] == Cancelled(tries=Tries(started=1), reason="no need")
    assert not is_open(state)
    for event in (SUBMITTED, PLANNED):
        state.apply(event, at_s=2.0)
    assert state.cancelled is None
    assert state.jobs[J] == Planned(tries=Tries(started=1))


def test_an_attempt_that_the_head_ended_is_not_held_against_its_job():
    ended = AttemptCancelled(study_id=S, task_id=T, attempt_id="x", reason="the night is over", again=True)
    assert state_after(started("x"), ended).jobs[J] == Retrying(tries=Tries(started=1), reason="the night is over")


def test_a_study_is_paused_and_resumed():
    assert state_after(StudyPaused(study_id=S, reason="wait")).paused == "wait"
    assert state_after(StudyPaused(study_id=S, reason="wait"), StudyResumed(study_id=S)).paused is None
