"""The book: the driver's view of the ledger, kept up to date event by event, whoever wrote them.

It holds the state of every study that is not over and of every machine, and the waiting jobs in the form that the plan
reads. What another process records (a new study, a cancellation, a pause) is found at the next `catch_up`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fleet.ledger.events import (
    AttemptCompleted,
    AttemptStarted,
    Event,
    JobEvent,
    MachineEvent,
    MachineResumed,
    Recorded,
    StudyCancelled,
    StudyEvent,
    StudyFinished,
    StudyPaused,
    StudyResumed,
    StudySubmitted,
    job_of,
)
from fleet.ledger.machines import MachineState, apply_machine
from fleet.ledger.schedule_events import ScheduleEvent
from fleet.ledger.schedule_state import Schedules, apply_schedule
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done, Planned, Retrying, StudyState
from fleet.nodes.job import JobId, job_parts
from fleet.nodes.node import NodeName
from fleet.schedule.plan import Waiting, interleaved
from fleet.study.study import StudyId
from worker.contract.task import Task, TaskId


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A study with what is derived from it once."""

    state: StudyState
    asked: dict[str, Any] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    positions: dict[TaskId, int] = field(default_factory=dict)
    groups: dict[TaskId, str] = field(default_factory=dict)
    waiting: dict[JobId, Waiting] = field(default_factory=dict)


class Book:
    """Owns the driver's copy of the ledger's state. Use in one thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._entries: dict[StudyId, _Entry] = {}
        self._not_before: dict[JobId, float] = {}
        self.machines: dict[NodeName, MachineState] = defaultdict(MachineState)
        self.turns: dict[NodeName, Counter[StudyId]] = defaultdict(Counter)
        self.resumed: set[NodeName] = set()
        """Machines that their owner gave back since somebody last emptied this."""
        self._seq = ledger.last_seq()
        self.schedules: Schedules = ledger.schedules()
        self._durations: dict[tuple[str, NodeName], list[float]] = defaultdict(list)
        for study_id, task_id, node, took_s in ledger.durations():
            self._remember(study_id, task_id, node, took_s)
        for name, state in ledger.machines().items():
            self.machines[name] = state
        for study_id in ledger.open_studies():
            self._open(study_id)

    @property
    def studies(self) -> dict[StudyId, StudyState]:
        """Every study that was not over when the book was opened, or that was submitted since."""
        return {study_id: entry.state for study_id, entry in self._entries.items()}

    def study(self, study_id: StudyId) -> StudyState:
        return self._entries[study_id].state

    def task(self, study_id: StudyId, job: JobId) -> Task:
        return self._entries[study_id].tasks[job_parts(job)[0]]

    def waiting(self, *, only: StudyId | None = None) -> Iterable[Waiting]:
        """The jobs that wait, of the studies that are not paused."""
        for study_id, entry in self._entries.items():
            if entry.state.paused is None and only in (None, study_id):
                yield from entry.waiting.values()

    def set_groups(self, study_id: StudyId, groups: dict[TaskId, str]) -> None:
        """Say which of a study's tasks fit the same machines: each task with the name of its group. Mutates: self."""
        entry = self._entries[study_id]
        entry.groups = groups
        for job in list(entry.waiting):
            self._place(entry, job)

    def tasks(self, study_id: StudyId) -> dict[TaskId, Task]:
        return self._entries[study_id].tasks

    def forget_finished(self) -> None:
        """Drop the studies that are over. Mutates: self."""
        for study_id, entry in list(self._entries.items()):
            if entry.state.finished_at_s is not None:
                del self._entries[study_id]

    def append(self, *events: Event, not_before_s: float | None = None) -> list[Recorded]:
        """Record events and take them in, with whatever others recorded meanwhile.

        `not_before_s`: the jobs of these events are not started before. Raises: StorageError.
        """
        if not_before_s is not None:
            self._not_before.update({job_of(event): not_before_s for event in events if isinstance(event, JobEvent)})
        self._ledger.append(*events)
        return self.catch_up()

    def catch_up(self) -> list[Recorded]:
        """Take in what was recorded since the last call, and return it."""
        records = self._ledger.since(self._seq)
        for record in records:
            self._seq = record.seq
            event = record.event
            if isinstance(event, MachineEvent):
                if isinstance(event, MachineResumed):
                    self.resumed.add(event.machine)
                self.machines[event.machine] = apply_machine(self.machines[event.machine], event)
            elif isinstance(event, ScheduleEvent):
                self.schedules = apply_schedule(self.schedules, event, at_s=record.at_s)
            else:
                self._take(event, record)
        return records

    def durations(self, study_id: StudyId, task_id: TaskId, node: NodeName) -> list[float]:
        """What the same task took on a machine before, else the other tasks of the same study there. Units: seconds."""
        return self._durations.get((task_id, node)) or self._durations.get((_series(study_id), node), [])

    def asked(self, study_id: StudyId) -> dict[str, Any]:
        """The study as it was asked for."""
        return self._entries[study_id].asked

    def _remember(self, study_id: StudyId, task_id: TaskId, node: NodeName, took_s: float) -> None:
        self._durations[task_id, node].append(took_s)
        self._durations[_series(study_id), node].append(took_s)

    def _take(self, event: StudyEvent, record: Recorded) -> None:
        entry = self._entries.get(event.study_id)
        if entry is None:
            self._open(event.study_id)
            return
        entry.state.apply(event, at_s=record.at_s)
        match event:
            case StudySubmitted():
                self._derive(entry)
            case StudyCancelled():
                self._place_all(entry)
            case StudyPaused() | StudyResumed() | StudyFinished():
                pass  # which jobs wait does not change
            case _:
                self._count(event, entry.state)
                self._place(entry, job_of(event))

    def _open(self, study_id: StudyId) -> None:
        state = self._ledger.state(study_id)
        assert state is not None
        entry = self._entries[study_id] = _Entry(state=state)
        self._derive(entry)

    def _derive(self, entry: _Entry) -> None:
        """What follows from the whole study: its tasks, their order, and every waiting job."""
        entry.asked = json.loads(entry.state.study)
        entry.tasks = entry.state.definitions()
        order = interleaved(len(entry.tasks))
        place = {index: position for position, index in enumerate(order)}
        entry.positions = {task_id: place[index] for index, task_id in enumerate(entry.tasks)}
        self._place_all(entry)

    def _place_all(self, entry: _Entry) -> None:
        entry.waiting = {}
        for job in entry.state.jobs:
            self._place(entry, job)

    def _place(self, entry: _Entry, job: JobId) -> None:
        state = entry.state.jobs[job]
        entry.waiting.pop(job, None)
        if not isinstance(state, Planned | Retrying):
            return
        task_id, target = job_parts(job)
        entry.waiting[job] = Waiting(
            job=job,
            study_id=entry.state.study_id,
            target=target,
            group=entry.groups.get(task_id, ""),
            position=entry.positions[task_id],
            positions=len(entry.positions),
            attempts=state.tries.started,
            not_before_s=self._not_before.get(job, 0.0),
        )

    def _count(self, event: JobEvent, state: StudyState) -> None:
        """Remember who has had a turn, and what attempts took."""
        if isinstance(event, AttemptStarted):
            self.turns[NodeName(event.node)][event.study_id] += 1
        elif isinstance(event, AttemptCompleted):
            done = state.jobs.get(job_of(event))
            if isinstance(done, Done) and done.attempt_id == event.attempt_id:
                self._remember(event.study_id, event.task_id, NodeName(done.node), done.took_s)


def _series(study_id: StudyId) -> str:
    """What all editions of a study have in common; no task's id holds a slash."""
    head, _, tail = study_id.rpartition("-")
    return f"series/{head if tail.isdecimal() and len(tail) < 8 else study_id}"
