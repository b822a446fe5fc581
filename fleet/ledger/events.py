"""The ledger's events: everything that ever happens to a study, as frozen values that become JSON and back.

An event is a fact and carries the decision that was taken (`retry`), so that reading an old ledger never depends on
today's policy.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, get_args

from fleet.ledger.schedule_events import ScheduleEvent, schedule_subject
from fleet.nodes.job import JobId, job_id
from fleet.nodes.node import NodeName
from fleet.study.study import StudyId
from worker.contract.errors import FailureKind
from worker.contract.task import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySubmitted:
    """Somebody asked for the study, for the first time or to go on. `study` is the resolved study as JSON."""

    study_id: StudyId
    name: str
    study: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlanned:
    """The task is to be run, on the machine `target` or on any. Planning a failed one again gives it a fresh start."""

    study_id: StudyId
    task_id: TaskId
    position: int
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A node was told to run the task."""

    study_id: StudyId
    task_id: TaskId
    attempt_id: str
    number: int
    node: str
    build_hash: str
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCompleted:
    """The tables of the attempt are in the store.

    `rows` counts them per table. The two spans are the head's share of the time, null when they were not seen:
    `submit_to_start_s` from asking for the attempt to its benchmark process, `measured_to_stored_s` from the last
    measurement to the tables in the store.
    """

    study_id: StudyId
    task_id: TaskId
    attempt_id: str
    rows: dict[str, int]
    submit_to_start_s: float | None = None
    measured_to_stored_s: float | None = None
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The benchmark ended by itself and says why. `retry`: the task will be tried again."""

    study_id: StudyId
    task_id: TaskId
    attempt_id: str
    kind: FailureKind
    error: str
    message: str
    hint: str
    retry: bool
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The benchmark's process, its supervisor or its node is gone. `counted`: it is held against the task."""

    study_id: StudyId
    task_id: TaskId
    attempt_id: str
    reason: str
    retry: bool
    counted: bool = True
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The head ended the attempt on purpose. `again`: the job waits for another one, and this one is not held against it."""

    study_id: StudyId
    task_id: TaskId
    attempt_id: str
    reason: str
    again: bool
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDropped:
    """A job that waited is not to run after all; planning it again brings it back."""

    study_id: StudyId
    task_id: TaskId
    reason: str
    target: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCancelled:
    """Nothing more of the study is to run; what is done stays."""

    study_id: StudyId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPaused:
    """No job of the study is to be started until it is resumed; what runs goes on."""

    study_id: StudyId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResumed:
    """The study's jobs may start again."""

    study_id: StudyId


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReported:
    """A machine was brought up and said what it is. `facts` is the JSON of `worker probe`, as it came."""

    machine: NodeName
    facts: dict[str, Any]
    build_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePaused:
    """Nothing is to be started on the machine until it is resumed; what runs goes on."""

    machine: NodeName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStruck:
    """An attempt was lost there. `strikes` counts the losses in a row; none is started there before `until_s`, if given."""

    machine: NodeName
    reason: str
    strikes: int
    until_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecovered:
    """An attempt ended well there again: its losses are forgotten."""

    machine: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResumed:
    """The machine may be used again: it is not paused, and its losses are forgotten."""

    machine: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFinished:
    """No task of the study is left to run."""

    study_id: StudyId
    num_done: int
    num_failed: int


AttemptEnding = AttemptCompleted | AttemptFailed | AttemptLost | AttemptCancelled
JobEvent = TaskPlanned | JobDropped | AttemptStarted | AttemptEnding
StudyEvent = StudySubmitted | StudyCancelled | StudyPaused | StudyResumed | StudyFinished | JobEvent
MachineEvent = MachineReported | MachinePaused | MachineStruck | MachineRecovered | MachineResumed
Event = StudyEvent | MachineEvent | ScheduleEvent

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}

MACHINE_SUBJECT = "machine:"
"""How the subject of a machine's events begins; no study's id holds a colon."""


def subject(event: Event) -> str:
    """What an event speaks of: a study's id, a machine, or a schedule."""
    if isinstance(event, ScheduleEvent):
        return schedule_subject(event.schedule)
    return f"{MACHINE_SUBJECT}{event.machine}" if isinstance(event, MachineEvent) else event.study_id


def job_of(event: JobEvent) -> JobId:
    return job_id(event.task_id, event.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An event with its place in the ledger. Units: `at_s` seconds since 1970."""

    seq: int
    at_s: float
    event: Event


def event_to_json(event: Event) -> tuple[str, str]:
    """The event's kind and its fields."""
    return type(event).__name__, json.dumps(dataclasses.asdict(event), ensure_ascii=False)


def event_from_json(kind: str, fields: str) -> Event:
    """Raises: ValueError for an event that this build does not know."""
    try:
        return _KINDS[kind](**json.loads(fields))
    except (KeyError, TypeError) as error:
        raise ValueError(f"event {kind!r} is unknown to this build: {error}") from error
