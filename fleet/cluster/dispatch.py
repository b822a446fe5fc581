"""The driver's loop: plan, start attempts, take what they send, record what happened, until no task is left to run.

The ledger is the truth and is written before anything is told to the user; a result counts once its tables are in the
store. This loop holds no policy: who runs where is `schedule.plan`, what is tried again is `schedule.retry`.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from fleet.cluster.actors import Attempt, wait_for_items
from fleet.cluster.items import Advanced, Ended, Item, Order, Started, TableItem, Vanished
from fleet.cluster.recover import recover
from fleet.cluster.watch import Count, NobodyWatches, Watcher
from fleet.errors import FleetError, InterruptedStudyError
from fleet.ledger.events import (
    AttemptCompleted,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    StudyFinished,
)
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done, Failed, Planned, Retrying, StudyState
from fleet.nodes.node import Node, NodeName
from fleet.schedule.plan import Assignment, Waiting, interleaved, plan
from fleet.schedule.retry import Retry, decide
from fleet.store.runs import RunStore
from fleet.study.study import StudyId
from worker.contract import outcome as outcomes
from worker.contract.build import build_hash
from worker.contract.spool import Progress
from worker.contract.task import Task, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How attempts are started and how long silence is tolerated. Units: seconds."""

    worker_argv: tuple[str, ...]
    spool: Path
    lock: Path | None = None
    cache: Path | None = None
    heartbeat_s: float = 5.0
    grace_s: float = 3.0
    start_deadline_s: float = 90.0
    """From asking for an attempt to its first item."""
    silence_deadline_s: float = 45.0
    """Without any item: the supervisor or its node is gone."""
    stall_deadline_s: float = 1800.0
    """Without a line of progress: the benchmark hangs. Long, because preparing a large model is one quiet step."""
    retry_pause: float = 1.0
    """Scales the pauses before another attempt."""


@dataclass(slots=True, kw_only=True)
class _Active:
    """What the driver knows of a running attempt. Units: seconds of the monotonic clock."""

    attempt: Attempt
    task: Task
    node: NodeName
    asked_s: float
    heard_s: float
    advanced_s: float
    started_s: float | None = None
    measured_s: float | None = None
    tables: dict[str, pa.Table] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.attempt.order.attempt_id


class Dispatcher:
    """Drives one study to its end on a running cluster. Owns the attempts that it starts."""

    def __init__(
        self,
        study_id: StudyId,
        *,
        nodes: Sequence[Node],
        fit: Mapping[tuple[TaskId, NodeName], bool],
        ledger: Ledger,
        store: RunStore,
        settings: Settings,
        watcher: Watcher | None = None,
    ) -> None:
        self._study_id = study_id
        self._nodes = nodes
        self._fit = fit
        self._ledger = ledger
        self._store = store
        self._settings = settings
        self._watcher = watcher or NobodyWatches()
        self._active: dict[NodeName, _Active] = {}
        self._not_before: dict[TaskId, float] = {}
        self._state = self._read()
        self._tasks = self._state.definitions()
        order = interleaved(len(self._tasks))
        self._positions = {task_id: order.index(index) for index, task_id in enumerate(self._tasks)}

    def run(self) -> StudyState:
        """Run every task that is planned; return when each is done or given up.

        Raises: InterruptedStudyError on Ctrl-C; StorageError when a result or an event cannot be kept. Either way no
        attempt is left running, and the ledger says so.
        """
        try:
            while self._waiting() or self._active:
                self._assign()
                self._listen()
                self._check_deadlines()
            self._ledger.append(self._finished())
        except KeyboardInterrupt:
            self._abandon("interrupted")
            raise InterruptedStudyError("stopped") from None
        except BaseException:
            self._abandon("the driver stopped")
            raise
        self._state = self._read()
        return self._state

    def _read(self) -> StudyState:
        state = self._ledger.state(self._study_id)
        if state is None:
            raise FleetError(f"study {self._study_id!r} was never submitted", "fleet submit STUDY")
        return state

    def _waiting(self) -> list[Waiting]:
        return [
            Waiting(
                task=self._tasks[task_id],
                position=self._positions[task_id],
                attempts=state.tries.started,
                not_before_s=self._not_before.get(task_id, 0.0),
            )
            for task_id, state in self._state.tasks.items()
            if isinstance(state, Planned | Retrying)
        ]

    def _assign(self) -> None:
        assignments = plan(
            self._waiting(),
            self._nodes,
            {node: active.task.id for node, active in self._active.items()},
            fit=lambda task, node: self._fit[task.id, node.name],
            now_s=time.monotonic(),
        )
        for assignment in assignments:
            self._start(assignment)

    def _start(self, assignment: Assignment) -> None:
        settings, task = self._settings, assignment.task
        attempt_id = f"{assignment.number:02d}-{secrets.token_hex(6)}"
        self._ledger.append(
            AttemptStarted(
                study_id=self._study_id,
                task_id=task.id,
                attempt_id=attempt_id,
                number=assignment.number,
                node=assignment.node,
                build_hash=build_hash(),
            )
        )
        self._state = self._read()
        order = Order(
            study_id=self._study_id,
            task=task,
            attempt_id=attempt_id,
            node=assignment.node,
            worker_argv=settings.worker_argv,
            spool=settings.spool,
            lock=settings.lock,
            cache=settings.cache,
            heartbeat_s=settings.heartbeat_s,
            grace_s=settings.grace_s,
        )
        now = time.monotonic()
        local = all(node.address is None for node in self._nodes if node.name == assignment.node)
        self._active[assignment.node] = _Active(
            attempt=Attempt(order, local=local),
            task=task,
            node=assignment.node,
            asked_s=now,
            heard_s=now,
            advanced_s=now,
        )
        self._watcher.started(assignment.node, task, assignment.number, self._count())

    def _listen(self) -> None:
        if not self._active:
            time.sleep(0.1)  # every node waits for the pause before a retry
            return
        by_attempt = {active.attempt: active for active in self._active.values()}
        for attempt, item in wait_for_items(list(by_attempt), timeout_s=0.5):
            self._take(by_attempt[attempt], item)

    def _take(self, active: _Active, item: Item) -> None:
        if item.attempt_id != active.id:
            return  # late: it speaks of an attempt that is over
        active.heard_s = time.monotonic()
        match item:
            case Started(build_hash=theirs) if theirs != build_hash():
                self._fail(active, _other_build(active.node, theirs))
            case Started():
                active.started_s = active.advanced_s = active.heard_s
            case Advanced(progress=progress):
                self._advance(active, progress)
            case TableItem(name=name, table=table):
                active.tables[name] = table
            case Ended(outcome=outcomes.Completed()):
                self._complete(active)
            case Ended(outcome=outcomes.Failed() as failure):
                self._fail(active, failure)
            case Vanished(reason=reason):
                self._lose(active, reason)
            case _:
                pass  # a heartbeat

    def _advance(self, active: _Active, progress: Progress) -> None:
        active.advanced_s = active.heard_s
        if progress.phase == "done":
            active.measured_s = active.heard_s
        self._watcher.progressed(active.node, progress)

    def _complete(self, active: _Active) -> None:
        measured_s = active.measured_s or active.heard_s
        try:
            self._store.append(active.tables, study_id=self._study_id, task_id=active.task.id, attempt_id=active.id)
        except ValueError as error:
            hint = "head and node must run the same build"
            self._fail(active, outcomes.Failed(kind="permanent", error="TableError", message=str(error), hint=hint))
            return
        self._ledger.append(
            AttemptCompleted(
                study_id=self._study_id,
                task_id=active.task.id,
                attempt_id=active.id,
                rows={name: table.num_rows for name, table in active.tables.items()},
                submit_to_start_s=None if active.started_s is None else active.started_s - active.asked_s,
                measured_to_stored_s=time.monotonic() - measured_s,
            )
        )
        shutil.rmtree(active.attempt.order.directory, ignore_errors=True)
        self._close(active)

    def _fail(self, active: _Active, failure: outcomes.Failed) -> None:
        tries = self._state.tasks[active.task.id].tries
        answer = decide(failure.kind, earlier=tries.lost if failure.kind == "lost" else tries.transient)
        self._ledger.append(
            AttemptFailed(
                study_id=self._study_id,
                task_id=active.task.id,
                attempt_id=active.id,
                kind=failure.kind,
                error=failure.error,
                message=failure.message,
                hint=failure.hint,
                retry=isinstance(answer, Retry),
            )
        )
        if isinstance(answer, Retry):
            self._not_before[active.task.id] = time.monotonic() + answer.delay_s * self._settings.retry_pause
        self._close(active)

    def _lose(self, active: _Active, reason: str) -> None:
        answer = decide("lost", earlier=self._state.tasks[active.task.id].tries.lost)
        self._ledger.append(
            AttemptLost(
                study_id=self._study_id,
                task_id=active.task.id,
                attempt_id=active.id,
                reason=reason,
                retry=isinstance(answer, Retry),
            )
        )
        self._close(active)

    def _close(self, active: _Active) -> None:
        """The attempt is over and recorded: free its node and say so."""
        active.attempt.close()
        del self._active[active.node]
        self._state = self._read()
        self._watcher.ended(active.node, active.task, self._state.tasks[active.task.id], self._count())

    def _check_deadlines(self) -> None:
        settings, now = self._settings, time.monotonic()
        for active in list(self._active.values()):
            silent_s = now - active.heard_s
            if active.started_s is None and silent_s > settings.start_deadline_s:
                self._lose(active, f"the node did not start it within {settings.start_deadline_s:g} s")
            elif active.started_s is not None and silent_s > settings.silence_deadline_s:
                self._lose(active, f"no sign of life from its node for {settings.silence_deadline_s:g} s")
            elif active.started_s is not None and now - active.advanced_s > settings.stall_deadline_s:
                self._lose(active, f"the benchmark made no progress for {settings.stall_deadline_s:g} s")

    def _abandon(self, reason: str) -> None:
        """End every attempt and record it; the task is not to blame."""
        for active in list(self._active.values()):
            active.attempt.close()
        self._active.clear()
        recover(self._study_id, ledger=self._ledger, store=self._store, reason=reason, counted=False)

    def _finished(self) -> StudyFinished:
        count = self._count()
        return StudyFinished(study_id=self._study_id, num_done=count.done, num_failed=count.failed)

    def _count(self) -> Count:
        state = self._state
        return Count(total=len(state.tasks), done=state.count(Done), failed=state.count(Failed))


def _other_build(node: NodeName, theirs: str) -> outcomes.Failed:
    return outcomes.Failed(
        kind="permanent",
        error="BuildError",
        message=f"node {node} runs build {theirs}, this head runs {build_hash()}",
        hint="install the same build on both, and do not edit the code while a study runs",
    )
