"""The state of a study: a pure fold over its events, each task in exactly one of five states.

    Planned --started--> Running --completed--> Done
       ^                    |--failed/lost, retry--> Retrying --started--> Running
       '----planned again---'--failed/lost, no retry--> Failed --planned again--> Planned

An event of an attempt that is not the running one is late and changes nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.ledger.events import (
    AttemptCompleted,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    Event,
    Recorded,
    StudyFinished,
    StudySubmitted,
    TaskPlanned,
)
from fleet.study.study import StudyId
from worker.contract.errors import FailureKind
from worker.contract.task import Task, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How often a task was started, and how often that ended badly since it was last planned."""

    started: int = 0
    transient: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Waiting for its first attempt."""

    tries: Tries = Tries()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An attempt is on a node."""

    tries: Tries
    attempt_id: str
    node: str
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """Waiting for another attempt."""

    tries: Tries
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Measured and stored."""

    tries: Tries
    attempt_id: str
    node: str
    rows: Mapping[str, int]
    submit_to_start_s: float | None
    measured_to_stored_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Given up."""

    tries: Tries
    kind: FailureKind
    error: str
    message: str
    hint: str


TaskState = Planned | Running | Retrying | Done | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyState:
    """A study as the ledger knows it. `tasks` keeps the study's order."""

    study_id: StudyId
    name: str = ""
    study: str = "{}"
    submitted_at_s: float | None = None
    changed_at_s: float | None = None
    finished_at_s: float | None = None
    tasks: Mapping[TaskId, TaskState] = field(default_factory=dict)

    @property
    def done_attempts(self) -> tuple[str, ...]:
        """The attempts whose rows count."""
        return tuple(state.attempt_id for state in self.tasks.values() if isinstance(state, Done))

    def count(self, *kinds: type[TaskState]) -> int:
        return sum(isinstance(state, kinds) for state in self.tasks.values())

    def definitions(self) -> dict[TaskId, Task]:
        """The tasks as they were submitted."""
        tasks = json.loads(self.study).get("tasks", [])
        parsed = [Task.from_dict({key: value for key, value in task.items() if key != "task_id"}) for task in tasks]
        return {task.id: task for task in parsed}


def fold(study_id: StudyId, records: Iterable[Recorded]) -> StudyState:
    """The state after all the records of one study."""
    state = StudyState(study_id=study_id)
    for record in records:
        state = apply(state, record.event, at_s=record.at_s)
    return state


def apply(state: StudyState, event: Event, *, at_s: float) -> StudyState:
    """The state after one more event. Nothing is changed in place."""
    state = dataclasses.replace(state, changed_at_s=at_s)
    match event:
        case StudySubmitted():
            return dataclasses.replace(
                state, name=event.name, study=event.study, submitted_at_s=at_s, finished_at_s=None
            )
        case StudyFinished():
            return dataclasses.replace(state, finished_at_s=at_s)
        case _:
            before = state.tasks.get(event.task_id)
            after = _next(before, event, at_s)
            if after is None or after is before:
                return state
            return dataclasses.replace(state, tasks={**state.tasks, event.task_id: after})


_Ending = AttemptCompleted | AttemptFailed | AttemptLost


def _next(task: TaskState | None, event: TaskPlanned | AttemptStarted | _Ending, at_s: float) -> TaskState | None:
    """The task's next state, or the same one when the event is late or out of place."""
    match event:
        case TaskPlanned():
            if task is None or isinstance(task, Failed):
                return Planned(tries=Tries(started=task.tries.started if task else 0))
        case AttemptStarted():
            if isinstance(task, Planned | Retrying):
                tries = dataclasses.replace(task.tries, started=event.number)
                return Running(tries=tries, attempt_id=event.attempt_id, node=event.node, since_s=at_s)
        case _:
            if isinstance(task, Running) and task.attempt_id == event.attempt_id:
                return _ended(task, event)
    return task


def _ended(task: Running, event: _Ending) -> TaskState:
    match event:
        case AttemptCompleted():
            return Done(
                tries=task.tries,
                attempt_id=task.attempt_id,
                node=task.node,
                rows=event.rows,
                submit_to_start_s=event.submit_to_start_s,
                measured_to_stored_s=event.measured_to_stored_s,
            )
        case AttemptFailed():
            tries = _after(task.tries, event.kind)
            if event.retry:
                return Retrying(tries=tries, reason=event.message)
            return Failed(tries=tries, kind=event.kind, error=event.error, message=event.message, hint=event.hint)
        case AttemptLost():
            tries = _after(task.tries, "lost") if event.counted else task.tries
            if event.retry:
                return Retrying(tries=tries, reason=event.reason)
            return Failed(tries=tries, kind="lost", error="Lost", message=event.reason, hint="submit the study again")


def _after(tries: Tries, kind: FailureKind) -> Tries:
    transient, lost = tries.transient + (kind == "transient"), tries.lost + (kind == "lost")
    return Tries(started=tries.started, transient=transient, lost=lost)
