"""A running attempt as its driver knows it, and the events with which it can end."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from fleet.cluster.actors import Attempt
from fleet.ledger.events import AttemptCancelled, AttemptCompleted, AttemptFailed, AttemptLost
from fleet.nodes.job import JobId, job_parts
from fleet.nodes.node import NodeName
from fleet.schedule.deadlines import Heard
from fleet.study.study import StudyId
from worker.contract.outcome import Failed
from worker.contract.spool import Progress
from worker.contract.task import Task, TaskId


@dataclass(slots=True, kw_only=True)
class Active:
    """One attempt. `local`: its machine is this one. Units: seconds of the monotonic clock."""

    attempt: Attempt
    study_id: StudyId
    job: JobId
    task: Task
    node: NodeName
    local: bool
    asked_s: float
    heard_s: float
    advanced_s: float
    started_s: float | None = None
    measured_s: float | None = None
    progress: Progress | None = None
    tables: dict[str, pa.Table] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.attempt.order.attempt_id

    @property
    def task_id(self) -> TaskId:
        return job_parts(self.job)[0]

    @property
    def target(self) -> NodeName | None:
        return job_parts(self.job)[1]

    @property
    def heard(self) -> Heard:
        return Heard(started=self.started_s is not None, item_s=self.heard_s, progress_s=self.advanced_s)

    def completed(self, *, now_s: float) -> AttemptCompleted:
        """Its tables are in the store since `now_s`."""
        return AttemptCompleted(
            study_id=self.study_id,
            task_id=self.task_id,
            attempt_id=self.id,
            rows={name: table.num_rows for name, table in self.tables.items()},
            submit_to_start_s=None if self.started_s is None else self.started_s - self.asked_s,
            measured_to_stored_s=now_s - (self.measured_s or self.heard_s),
            target=self.target,
        )

    def failed(self, failure: Failed, *, retry: bool) -> AttemptFailed:
        return AttemptFailed(
            study_id=self.study_id,
            task_id=self.task_id,
            attempt_id=self.id,
            kind=failure.kind,
            error=failure.error,
            message=failure.message,
            hint=failure.hint,
            retry=retry,
            target=self.target,
        )

    def lost(self, reason: str, *, retry: bool) -> AttemptLost:
        return AttemptLost(
            study_id=self.study_id,
            task_id=self.task_id,
            attempt_id=self.id,
            reason=reason,
            retry=retry,
            target=self.target,
        )

    def cancelled(self, reason: str, *, again: bool) -> AttemptCancelled:
        return AttemptCancelled(
            study_id=self.study_id,
            task_id=self.task_id,
            attempt_id=self.id,
            reason=reason,
            again=again,
            target=self.target,
        )
