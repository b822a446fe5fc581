"""Following a study that another process drives: by the ledger what is done, by the driver's live file how far it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from fleet.cluster.live import read_live
from fleet.cluster.watch import Count, Watcher
from fleet.errors import ClusterError
from fleet.ledger.events import AttemptEnding, AttemptStarted, Recorded, StudyEvent, job_of
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done, Failed, Running, StudyState, is_open
from fleet.nodes.job import JobId
from fleet.nodes.node import NodeName
from fleet.study.study import StudyId
from worker.contract.spool import Progress
from worker.contract.task import Task, TaskId

POLL_S = 0.5
WITHOUT_DRIVER_S = 30.0
"""A driver that is started again, or whose cluster is, comes back within this time."""


def follow(data: Path, study_id: StudyId, watcher: Watcher) -> StudyState:
    """Watch a study until nothing of it is left to run.

    Raises: ClusterError when nobody drives it any more; the study itself waits for the next driver.
    """
    with Ledger(data, read_only=True) as ledger:
        seq, state = ledger.last_seq(), ledger.state(study_id)
        assert state is not None
        tasks = state.definitions()  # a study's id is a hash of them: they stay
        driven_s = time.monotonic()
        while is_open(state):
            time.sleep(POLL_S)
            for record in ledger.since(seq):
                seq = record.seq
                _tell(state, tasks, record, watcher)
            live = read_live(data)
            now = time.monotonic()
            driven_s = now if live else driven_s
            if now - driven_s > WITHOUT_DRIVER_S:
                raise ClusterError(f"study {study_id}: nobody drives it any more", "fleet serve goes on with it")
            for machine in live.machines if live else ():
                if machine.study_id == study_id and machine.phase and machine.phase != "starting":
                    progress = Progress(phase=machine.phase, fraction=machine.fraction or 0.0, tok_s=machine.tok_s)
                    watcher.progressed(NodeName(machine.name), progress)
        return state


def _tell(state: StudyState, tasks: Mapping[TaskId, Task], record: Recorded, watcher: Watcher) -> None:
    event = record.event
    if not isinstance(event, StudyEvent) or event.study_id != state.study_id:
        return
    node = _node(state, job_of(event)) if isinstance(event, AttemptEnding) else None
    state.apply(event, at_s=record.at_s)
    count = Count(total=len(state.jobs), done=state.count(Done), failed=state.count(Failed))
    if isinstance(event, AttemptStarted):
        watcher.started(NodeName(event.node), tasks[event.task_id], event.number, count)
    elif isinstance(event, AttemptEnding) and node is not None:
        job = job_of(event)
        watcher.ended(node, tasks[event.task_id], state.jobs[job], count)


def _node(state: StudyState, job: JobId) -> NodeName | None:
    running = state.jobs.get(job)
    return NodeName(running.node) if isinstance(running, Running) else None
