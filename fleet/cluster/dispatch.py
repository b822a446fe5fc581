"""The driver's loop: follow the ledger, plan, start attempts, take what they send, record what happened.

The ledger is the truth and is written before anything is told to the user; a result counts once its tables are in the
store. This loop holds no policy: who runs where is `schedule.plan`, what is tried again `schedule.retry`, how long silence
is tolerated `schedule.deadlines`, which machine is left alone `schedule.quarantine`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.cluster.active import Active
from fleet.cluster.actors import Attempt, wait_for_items
from fleet.cluster.admission import Admission, Targets
from fleet.cluster.book import Book
from fleet.cluster.items import Advanced, Ended, Item, LogItem, Order, Postponed, Started, TableItem, Vanished
from fleet.cluster.live import LiveFile, LiveMachine
from fleet.cluster.night_shift import NightShift
from fleet.cluster.orders import Settings, places_on
from fleet.cluster.recover import recover
from fleet.cluster.watch import Count, NobodyWatches, Watcher
from fleet.errors import InterruptedStudyError
from fleet.ledger.events import (
    AttemptStarted,
    Event,
    JobDropped,
    MachineRecovered,
    MachineStruck,
    StudyFinished,
)
from fleet.ledger.machines import MachineState
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done, Failed, Running, StudyState, Tries, Waiting, is_open
from fleet.nodes.job import job_parts
from fleet.nodes.node import Node, NodeName
from fleet.schedule.deadlines import overdue
from fleet.schedule.plan import Free, Start, plan
from fleet.schedule.quarantine import quarantined_until
from fleet.schedule.retry import GiveUp, Retry, decide
from fleet.store.runs import RunStore
from fleet.study.study import Study, StudyId
from worker.contract import outcome as outcomes
from worker.contract.build import build_hash
from worker.contract.errors import StorageError
from worker.contract.private import own_directory, write_own
from worker.contract.spool import Progress
from worker.contract.task import Task

GATE_PAUSE_S = 300.0
"""A machine that is not in the condition asked for is asked again after this, then after twice as long, ..."""
LONGEST_GATE_PAUSE_S = 1800.0
DISK_PAUSE_S = 60.0
"""A machine whose disk is full is given nothing for this long, then for twice as long, ..."""
PRESENCE_S = 2.0
"""How often the cluster is asked who is there."""


class Cluster(Protocol):
    """Where attempts can run."""

    def nodes(self) -> Sequence[Node]:
        """The machines of the inventory."""
        ...

    def ask(self, study: Study, machines: Mapping[NodeName, MachineState]) -> tuple[Study, Targets]:
        """The study as it runs here, and who is to run what. Raises: UsageError when a task fits no machine."""
        ...

    def present(self) -> frozenset[NodeName]:
        """Those that can be given an attempt now. Raises: ClusterError when the cluster itself is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Why nothing is started on a machine: a state in one word, and the reason in words."""

    state: str
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """A machine that is left alone for a while. Units: `until_s` seconds since 1970; `pause_s` how long that is."""

    reason: str
    pause_s: float
    until_s: float


class Dispatcher:
    """Drives the studies of a ledger on a running cluster. Owns the attempts that it starts."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        ledger: Ledger,
        store: RunStore,
        settings: Settings,
        only: StudyId | None = None,
        watcher: Watcher | None = None,
        live: LiveFile | None = None,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`only`: leave all other studies alone. `clock`: seconds since 1970."""
        self._cluster, self._store, self._ledger = cluster, store, ledger
        self._settings, self._only, self._clock = settings, only, clock
        self._watcher, self._live = watcher or NobodyWatches(), live
        self._admission = Admission()
        self.book = Book(ledger)
        self._shift = NightShift(book=self.book, ledger=ledger, ask=self._ask, clock=clock, say=say)
        self.active: dict[NodeName, Active] = {}
        self._closing: dict[NodeName, threading.Thread] = {}
        self.present: frozenset[NodeName] = frozenset()
        self._asked_presence_s = -PRESENCE_S
        self._nodes: dict[NodeName, Node] = {}
        self._not_ready: dict[NodeName, NotReady] = {}

    def run(self) -> None:
        """Run every job of the one study until each is done or given up.

        Raises: InterruptedStudyError on Ctrl-C; StorageError when a result or an event cannot be kept; ClusterError when
        the cluster is gone. Whatever happens, no attempt is left running, and the ledger says so.
        """
        study_id = self._only
        assert study_id is not None
        self._guarded(lambda: is_open(self.book.study(study_id)))

    def serve(self) -> None:
        """Run whatever the ledger asks for, until interrupted. Raises: as `run`."""
        self._guarded(lambda: True)

    def _guarded(self, more: Callable[[], bool]) -> None:
        try:
            while more() or self.active:
                self.step()
            self._finish_studies()
        except KeyboardInterrupt:
            self._abandon("interrupted")
            raise InterruptedStudyError("stopped") from None
        except BaseException:
            self._abandon("the driver stopped")
            raise
        finally:
            if self._live is not None:
                self._live.close()
            for thread in list(self._closing.values()):
                thread.join()

    def step(self) -> None:
        """One turn: follow, start, listen, give up what is overdue, close what is over."""
        self.book.catch_up()
        while self.book.resumed:
            self._not_ready.pop(self.book.resumed.pop(), None)
        self._look()
        if self._only is None:
            self._shift.begin_and_end()
        self._cancel()
        self._start_planned()
        self._listen()
        self._give_up_overdue()
        self._finish_studies()
        if self._live is not None:
            self._live.tell(self._machines, {str(study): reason for study, reason in self._shift.postponed.items()})

    def _machines(self) -> list[LiveMachine]:
        return [self._machine(node) for node in self._nodes.values()]

    def _machine(self, node: Node) -> LiveMachine:
        active = self.active.get(node.name)
        if active is None:
            idle = self.why_idle(node)
            return LiveMachine(name=node.name, state="idle" if idle is None else idle.state, why=idle and idle.why)
        progress = active.progress
        return LiveMachine(
            name=node.name,
            state="busy",
            study_id=active.study_id,
            job=active.job,
            attempt_id=active.id,
            number=self._tries(active).started,
            phase=progress.phase if progress else "starting",
            fraction=progress.fraction if progress else 0.0,
            tok_s=progress.tok_s if progress else None,
        )

    def _look(self) -> None:
        """Who is there, and which jobs fit them: one answer for the whole turn."""
        now = time.monotonic()
        if now - self._asked_presence_s >= PRESENCE_S:
            self._asked_presence_s = now
            self.present = self._cluster.present()
        self._nodes = {node.name: node for node in self._cluster.nodes()}
        self._admission.follow(self.book, self._nodes.values())

    def _start_planned(self) -> None:
        starts = plan(
            self.book.waiting(only=self._only),
            self._free(),
            fits=self._admission.fits,
            may_start=lambda waiting, name: self._shift.may_start(waiting, self._nodes[name]),
            now_s=self._clock(),
        )
        for start in starts:
            self._start(start, self._nodes[start.node])

    def _free(self) -> list[Free]:
        """The machines that may start something now, in the inventory's order."""
        for node in [node for node, thread in self._closing.items() if not thread.is_alive()]:
            del self._closing[node]
        return [
            Free(name=node.name, turns=self.book.turns[node.name])
            for node in self._nodes.values()
            if self.why_idle(node) is None
        ]

    def why_idle(self, node: Node) -> Idle | None:
        """Why nothing is started on a machine now, or None when something may be."""
        name, machine = node.name, self.book.machines[node.name]
        if name in self.active or name in self._closing:
            return Idle(state="busy", why=None if name in self.active else "its last attempt is being ended")
        if name not in self.present:
            return Idle(state="away", why="it is not in the cluster")
        paused = machine.paused or node.pause
        if paused is not None:
            return Idle(state="paused", why=paused)
        if machine.quarantined_until_s is not None and machine.quarantined_until_s > self._clock():
            return Idle(state="aside", why=f"{machine.strikes} attempts in a row were lost: {machine.quarantined_for}")
        held = self._not_ready.get(name)
        if held is not None and held.until_s > self._clock():
            return Idle(state="not ready", why=held.reason)
        return None

    def _start(self, start: Start, node: Node) -> None:
        task_id, target = job_parts(start.job)
        attempt_id = f"{start.number:02d}-{secrets.token_hex(6)}"
        self.book.append(
            AttemptStarted(
                study_id=start.study_id,
                task_id=task_id,
                attempt_id=attempt_id,
                number=start.number,
                node=start.node,
                build_hash=build_hash(),
                target=target,
            )
        )
        task = self.book.task(start.study_id, start.job)
        now = time.monotonic()
        self.active[start.node] = Active(
            attempt=Attempt(self._order(start, task, attempt_id, node), local=node.address is None),
            study_id=start.study_id,
            job=start.job,
            task=task,
            node=start.node,
            local=node.address is None,
            asked_s=now,
            heard_s=now,
            advanced_s=now,
        )
        self._watcher.started(start.node, task, start.number, self._count(start.study_id))

    def _order(self, start: Start, task: Task, attempt_id: str, node: Node) -> Order:
        settings, places = self._settings, places_on(node, self._settings)
        return Order(
            study_id=start.study_id,
            task=task,
            attempt_id=attempt_id,
            node=start.node,
            worker_argv=settings.worker_argv,
            spool=places.spool,
            lock=places.lock,
            cache=places.cache,
            heartbeat_s=settings.heartbeat_s,
            grace_s=settings.grace_s,
            gates=self._shift.gates(start.study_id),
        )

    def _listen(self) -> None:
        if not self.active:
            time.sleep(0.1)  # every job waits: for a pause, or for a machine
            return
        by_attempt = {active.attempt: active for active in self.active.values()}
        for attempt, item in wait_for_items(list(by_attempt), timeout_s=0.5):
            active = by_attempt[attempt]
            if self.active.get(active.node) is active:
                self._take(active, item)

    def _take(self, active: Active, item: Item) -> None:
        if item.attempt_id != active.id:
            return  # late: it speaks of an attempt that is over
        active.heard_s = time.monotonic()
        match item:
            case Postponed(reasons=reasons):
                self._postpone(active, "; ".join(reasons))
            case Started(build_hash=theirs) if theirs != build_hash():
                self._refuse_build(active, theirs)
            case Started():
                self._not_ready.pop(active.node, None)
                active.started_s = active.advanced_s = active.heard_s
            case Advanced(progress=progress):
                self._advance(active, progress)
            case TableItem(name=name, table=table):
                active.tables[name] = table
            case LogItem(text=text):
                self._keep_log(active, text)
            case Ended(outcome=outcomes.Completed()):
                self._complete(active)
            case Ended(outcome=outcomes.Failed() as failure):
                self._fail(active, failure)
            case Vanished(reason=reason, machine=machine):
                self._lose(active, reason, machine=machine)
            case _:
                pass  # a heartbeat

    def _advance(self, active: Active, progress: Progress) -> None:
        active.advanced_s, active.progress = active.heard_s, progress
        if progress.phase == "done":
            active.measured_s = active.heard_s
        self._watcher.progressed(active.node, progress)

    def _keep_log(self, active: Active, text: str) -> None:
        if self._settings.logs is not None and text:
            path = self._settings.logs / f"{active.id}.log"
            try:
                own_directory(path.parent)
                write_own(path, text)
            except OSError:  # a log is no reason to stop; a disk that is full is told by the store
                with contextlib.suppress(OSError):
                    path.unlink()

    def _complete(self, active: Active) -> None:
        try:
            self._store.append(active.tables, study_id=active.study_id, task_id=active.task_id, attempt_id=active.id)
        except ValueError as error:
            hint = "head and node must run the same build"
            self._fail(active, outcomes.Failed(kind="permanent", error="TableError", message=str(error), hint=hint))
            return
        recovered = [MachineRecovered(machine=active.node)] if self.book.machines[active.node].strikes else []
        self._end(active, active.completed(now_s=time.monotonic()), *recovered, forget=True)

    def _fail(self, active: Active, failure: outcomes.Failed) -> None:
        tries = self._tries(active)
        answer = decide(failure.kind, earlier=tries.lost if failure.kind == "lost" else tries.transient)
        if failure.error == StorageError.__name__ and failure.kind == "transient" and not active.local:
            # Else a machine whose disk is full would take and fail one job after the other.
            self._leave_alone(active.node, failure.message, first_s=DISK_PAUSE_S * self._settings.retry_pause)
        self._end(active, active.failed(failure, retry=isinstance(answer, Retry)), answer=answer, forget=True)

    def _lose(self, active: Active, reason: str, *, machine: bool) -> None:
        answer = decide("lost", earlier=self._tries(active).lost)
        struck = [self._strike(active.node, reason)] if machine and not active.local else []
        lost = active.lost(reason, retry=isinstance(answer, Retry))
        self._end(active, lost, *struck, answer=answer, forget=False)

    def _strike(self, node: NodeName, reason: str) -> MachineStruck:
        strikes = self.book.machines[node].strikes + 1
        until_s = quarantined_until(strikes, now_s=self._clock())
        return MachineStruck(machine=node, reason=reason, strikes=strikes, until_s=until_s)

    def _postpone(self, active: Active, reason: str) -> None:
        self._leave_alone(active.node, reason, first_s=GATE_PAUSE_S)
        self._give_back(active, reason)

    def _leave_alone(self, node: NodeName, reason: str, *, first_s: float) -> None:
        """Start nothing on a machine for a while, longer each time that it is not ready in a row."""
        earlier = self._not_ready.get(node)
        self._hold(node, reason, min(max(2 * earlier.pause_s if earlier else 0.0, first_s), LONGEST_GATE_PAUSE_S))

    def _hold(self, node: NodeName, reason: str, pause_s: float) -> None:
        self._not_ready[node] = NotReady(reason=reason, pause_s=pause_s, until_s=self._clock() + pause_s)

    def _refuse_build(self, active: Active, theirs: str) -> None:
        """Another build measures something else. This machine's own is the user's mistake; a node's can be replaced."""
        if active.local:
            self._fail(active, _other_build(active.node, theirs))
            return
        reason = f"it runs build {theirs}, this head {build_hash()}: fleet up {active.node} installs the same"
        self._hold(active.node, reason, GATE_PAUSE_S)
        self._give_back(active, reason)

    def _give_back(self, active: Active, reason: str) -> None:
        """End an attempt that is not held against its job: it waits again."""
        self._end(active, active.cancelled(reason, again=True), forget=True)

    def _cancel(self) -> None:
        """End the attempts of studies that were taken back."""
        for active in list(self.active.values()):
            reason = self.book.study(active.study_id).cancelled
            if reason is not None:
                self._end(active, active.cancelled(reason, again=False), forget=True)

    def _end(self, active: Active, *events: Event, forget: bool, answer: Retry | GiveUp | None = None) -> None:
        """The attempt is over: record it, free its node, and say so."""
        not_before_s = None
        if isinstance(answer, Retry):
            not_before_s = self._clock() + answer.delay_s * self._settings.retry_pause
        self.book.append(*events, not_before_s=not_before_s)
        del self.active[active.node]
        # A node that does not react is waited for beside the loop; until then nothing is started there.
        thread = threading.Thread(target=active.attempt.close, kwargs={"forget": forget}, daemon=True)
        self._closing[active.node] = thread
        thread.start()
        state = self.book.study(active.study_id)
        self._watcher.ended(active.node, active.task, state.jobs[active.job], self._count(active.study_id))

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        for active in list(self.active.values()):
            reason = self._overran(active)
            if reason is not None:
                self._give_back(active, reason)
                continue
            late = overdue(active.heard, self._settings.limits, now_s=now)
            if late is not None:
                self._lose(active, late.reason, machine=late.machine)

    def _overran(self, active: Active) -> str | None:
        running = self.book.study(active.study_id).jobs[active.job]
        node = self._nodes.get(active.node)
        if node is None or not isinstance(running, Running):
            return None
        return self._shift.overran(active.study_id, node, running.since_s)

    def _ask(self, study: Study) -> tuple[Study, Targets]:
        return self._cluster.ask(study, self.book.machines)

    def _finish_studies(self) -> None:
        for study_id, state in self.book.studies.items():
            if self._only not in (None, study_id):
                continue
            self._drop_optional(state)
            if state.finished_at_s is None and not is_open(state):
                count = self._count(study_id)
                self.book.append(StudyFinished(study_id=study_id, num_done=count.done, num_failed=count.failed))
        if self._only is None:
            self.book.forget_finished()

    def _drop_optional(self, state: StudyState) -> None:
        """A study does not wait for machines that may be absent once nothing else of it is left to run."""
        away = {node.name for node in self._nodes.values() if node.optional} - self.present
        left = [job_parts(job) for job, job_state in state.jobs.items() if isinstance(job_state, Waiting | Running)]
        if left and all(target in away for _, target in left):
            self.book.append(
                *(
                    JobDropped(
                        study_id=state.study_id, task_id=task, target=target, reason=f"{target} is optional and away"
                    )
                    for task, target in left
                )
            )

    def _abandon(self, reason: str) -> None:
        """End every attempt and record it; the job is not to blame."""
        studies = {active.study_id for active in self.active.values()}
        for active in list(self.active.values()):
            active.attempt.close(forget=True)
        self.active.clear()
        for study_id in studies:
            recover(study_id, ledger=self._ledger, store=self._store, reason=reason, counted=False)

    def _tries(self, active: Active) -> Tries:
        return self.book.study(active.study_id).jobs[active.job].tries

    def _count(self, study_id: StudyId) -> Count:
        state = self.book.study(study_id)
        return Count(total=len(state.jobs), done=state.count(Done), failed=state.count(Failed))


def _other_build(node: NodeName, theirs: str) -> outcomes.Failed:
    return outcomes.Failed(
        kind="permanent",
        error="BuildError",
        message=f"node {node} runs build {theirs}, this head runs {build_hash()}",
        hint="install the same build on both, and do not edit the code while a study runs",
    )
