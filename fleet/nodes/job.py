"""A job: one task on one machine, or on whichever machine fits. What is planned, tried, and done."""

from __future__ import annotations

from typing import NewType

from fleet.nodes.node import NodeName
from worker.contract.task import TaskId

JobId = NewType("JobId", str)
"""A task's id when any machine may run it, else `TASK@MACHINE`."""


def job_id(task_id: TaskId, target: NodeName | None) -> JobId:
    return JobId(task_id if target is None else f"{task_id}@{target}")


def job_parts(job: JobId) -> tuple[TaskId, NodeName | None]:
    """The task, and the machine that it is meant for."""
    task_id, _, target = job.partition("@")
    return TaskId(task_id), NodeName(target) if target else None
