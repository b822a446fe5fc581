"""What a driver that is gone left open: every attempt that still counts as running is settled by the store."""

from __future__ import annotations

from fleet.ledger.events import AttemptCompleted, AttemptLost, Event
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Running
from fleet.nodes.job import job_parts
from fleet.schedule.retry import Retry, decide
from fleet.store.runs import RunStore
from fleet.study.study import StudyId


def recover(study_id: StudyId, *, ledger: Ledger, store: RunStore, reason: str, counted: bool) -> int:
    """Record the end of every running attempt of a study; return how many there were.

    The caller must be the one driver. An attempt whose tables reached the store is complete, even if its driver died
    before it could say so; any other is lost, and held against its task when `counted`.
    """
    state = ledger.state(study_id)
    events: list[Event] = []
    for job, task in state.jobs.items() if state else ():
        if not isinstance(task, Running):
            continue
        task_id, target = job_parts(job)
        if store.holds(study_id, task_id, task.attempt_id):
            rows = store.count_rows(study_id, task_id, task.attempt_id)
            events.append(
                AttemptCompleted(
                    study_id=study_id, task_id=task_id, attempt_id=task.attempt_id, rows=rows, target=target
                )
            )
            continue
        answer = decide("lost", earlier=task.tries.lost) if counted else Retry(delay_s=0.0)
        events.append(
            AttemptLost(
                study_id=study_id,
                task_id=task_id,
                attempt_id=task.attempt_id,
                reason=reason,
                retry=isinstance(answer, Retry),
                counted=counted,
                target=target,
            )
        )
    if events:
        ledger.append(*events)
    return len(events)
