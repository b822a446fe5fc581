"""The state of a study: a fold over its events, each job in exactly one of six states.

    Planned --started--> Running --completed--> Done
       ^                    |--failed/lost, retry; cancelled, again--> Retrying --started--> Running
       |--planned again-----|--failed/lost, no retry--> Failed
       '--planned again-----'--cancelled--> Cancelled

An event of an attempt that is not the running one is late and changes nothing. A state is changed in place by whoever
folds it: a study of thousands of jobs is followed event by event.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.ledger.events import (
    AttemptCancelled,
    AttemptCompleted,
    AttemptEnding,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    JobEvent,
    Recorded,
    StudyCancelled,
    StudyEvent,
    StudyFinished,
    StudyPaused,
    StudyResumed,
    StudySubmitted,
    TaskPlanned,
    job_of,
)
from fleet.nodes.job import JobId, job_parts
from fleet.study.study import StudyId
from worker.contract.errors import FailureKind
from worker.contract.task import Task, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How often a job was started, and how often that ended badly since it was last planned."""

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
    """Measured and stored. Units: `took_s` seconds from the attempt's start to its tables in the store."""

    tries: Tries
    attempt_id: str
    node: str
    rows: Mapping[str, int]
    submit_to_start_s: float | None
    measured_to_stored_s: float | None
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Given up."""

    tries: Tries
    kind: FailureKind
    error: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Taken back by whoever asked for it."""

    tries: Tries
    reason: str


JobState = Planned | Running | Retrying | Done | Failed | Cancelled
Waiting = Planned | Retrying


@dataclass(slots=True, kw_only=True)
class StudyState:
    """A study as the ledger knows it. `jobs` keeps the study's order."""

    study_id: StudyId
    name: str = ""
    study: str = "{}"
    submitted_at_s: float | None = None
    changed_at_s: float | None = None
    finished_at_s: float | None = None
    cancelled: str | None = None
    """Why nothing more of it runs."""
    paused: str | None = None
    """Why nothing more of it is started for now."""
    jobs: dict[JobId, JobState] = field(default_factory=dict)

    @property
    def done_attempts(self) -> tuple[str, ...]:
        """The attempts whose rows count."""
        return tuple(state.attempt_id for state in self.jobs.values() if isinstance(state, Done))

    def count(self, *kinds: type[JobState]) -> int:
        return sum(isinstance(state, kinds) for state in self.jobs.values())

    def definitions(self) -> dict[TaskId, Task]:
        """The tasks as they were submitted."""
        tasks = json.loads(self.study).get("tasks", [])
        parsed = [Task.from_dict({key: value for key, value in task.items() if key != "task_id"}) for task in tasks]
        return {task.id: task for task in parsed}

    def tasks_of_jobs(self) -> dict[JobId, Task]:
        """Each job with its task."""
        tasks = self.definitions()
        return {job: tasks[job_parts(job)[0]] for job in self.jobs}

    def apply(self, event: StudyEvent, *, at_s: float) -> None:
        """Take in one more event. Mutates: self."""
        self.changed_at_s = at_s
        match event:
            case StudySubmitted():
                self.name, self.study, self.submitted_at_s = event.name, event.study, at_s
                self.finished_at_s = self.cancelled = self.paused = None
            case StudyFinished():
                self.finished_at_s = at_s
            case StudyCancelled():
                self.cancelled = event.reason
                for job, state in self.jobs.items():
                    if isinstance(state, Waiting):
                        self.jobs[job] = Cancelled(tries=state.tries, reason=event.reason)
            case StudyPaused():
                self.paused = event.reason
            case StudyResumed():
                self.paused = None
            case _:
                job = job_of(event)
                after = _next(self.jobs.get(job), event, at_s)
                if after is not None:
                    self.jobs[job] = after


def fold(study_id: StudyId, records: Iterable[Recorded]) -> StudyState:
    """The state after all the records of one study."""
    state = StudyState(study_id=study_id)
    for record in records:
        if isinstance(record.event, StudyEvent):
            state.apply(record.event, at_s=record.at_s)
    return state


def _next(job: JobState | None, event: JobEvent, at_s: float) -> JobState | None:
    """The job's next state, or the same one when the event is late or out of place."""
    match event:
        case TaskPlanned():
            if job is None or isinstance(job, Failed | Cancelled):
                return Planned(tries=Tries(started=job.tries.started if job else 0))
        case AttemptStarted():
            if isinstance(job, Waiting):
                tries = dataclasses.replace(job.tries, started=event.number)
                return Running(tries=tries, attempt_id=event.attempt_id, node=event.node, since_s=at_s)
        case _:
            if isinstance(job, Running) and job.attempt_id == event.attempt_id:
                return _ended(job, event, at_s)
    return job


def _ended(job: Running, event: AttemptEnding, at_s: float) -> JobState:
    match event:
        case AttemptCompleted():
            return Done(
                tries=job.tries,
                attempt_id=job.attempt_id,
                node=job.node,
                rows=event.rows,
                submit_to_start_s=event.submit_to_start_s,
                measured_to_stored_s=event.measured_to_stored_s,
                took_s=at_s - job.since_s,
            )
        case AttemptFailed():
            tries = _after(job.tries, event.kind)
            if event.retry:
                return Retrying(tries=tries, reason=event.message)
            return Failed(tries=tries, kind=event.kind, error=event.error, message=event.message, hint=event.hint)
        case AttemptLost():
            tries = _after(job.tries, "lost") if event.counted else job.tries
            if event.retry:
                return Retrying(tries=tries, reason=event.reason)
            return Failed(tries=tries, kind="lost", error="Lost", message=event.reason, hint="submit the study again")
        case AttemptCancelled():
            again = Retrying(tries=job.tries, reason=event.reason)
            return again if event.again else Cancelled(tries=job.tries, reason=event.reason)


def _after(tries: Tries, kind: FailureKind) -> Tries:
    transient, lost = tries.transient + (kind == "transient"), tries.lost + (kind == "lost")
    return Tries(started=tries.started, transient=transient, lost=lost)


def is_open(state: StudyState) -> bool:
    """Whether something of the study runs or waits to run."""
    return any(isinstance(job, Waiting | Running) for job in state.jobs.values())
