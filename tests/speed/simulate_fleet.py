"""A fleet in one process: the real plan, night policy and ledger, with simulated machines and a virtual clock.

    python -m tests.speed.simulate_fleet [--machines 1000] [--jobs 10000] [--nights 30] [--seed 1]

A schedule runs one study over as many nights as it takes: four fifths of its jobs are meant for one machine each, the
rest for whichever is free. One attempt in twenty goes wrong. Prints what became of the jobs, and what a planning step
costs with a quarter, a half and all of them. The same seed gives the same run to the last event.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from fleet.cluster.book import Book
from fleet.cluster.standing import standing
from fleet.ledger.events import (
    AttemptCancelled,
    AttemptCompleted,
    AttemptFailed,
    AttemptLost,
    AttemptStarted,
    Event,
    StudySubmitted,
    TaskPlanned,
)
from fleet.ledger.schedule_events import NightBegan, NightEnded, ScheduleAdded, ScheduleName
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Done, Failed, is_open
from fleet.nodes.job import JobId, job_parts
from fleet.nodes.node import NodeName
from fleet.nodes.window import Intersection, intersect, parse_window
from fleet.schedule.nights import BeginNight, Cancel, Start, due, expected_s, first_guess_s, may_start, overrun
from fleet.schedule.plan import Free, Waiting, plan
from fleet.schedule.retry import Retry, decide
from fleet.study.study import Study
from worker.contract.task import CheckpointRef, Prompt, Task

TICK_S = 300.0
GRACE_S = 900.0
BEGIN_S = 1_772_366_400.0
"""Noon on 2026-03-01, UTC."""
SCHEDULE = ScheduleName("overnight")
LOST, TRANSIENT, PERMANENT = 0.02, 0.04, 0.05
"""Where a random number in [0, 1) falls: below the first an attempt is lost, and so on; above the last it is well."""
GOAL_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the jobs. `completions` counts the completed attempts of each job that has any."""

    done: int
    failed: dict[str, int]
    unfinished: dict[str, int]
    completions: Counter[JobId]
    nights: int
    cancelled: int
    digest: str
    plan_ms: list[float]
    plan_waiting: list[int]


@dataclass(order=True, slots=True)
class _Run:
    """An attempt under way: when it ends by itself, on which machine."""

    ends_s: float
    node: NodeName
    job: JobId = field(compare=False)
    attempt_id: str = field(compare=False)
    window_end_s: float = field(compare=False)


def make_study(num_machines: int, num_jobs: int) -> tuple[Study, list[tuple[int, NodeName | None]]]:
    """A study and its jobs, each a task's place and the machine it is meant for."""
    names = [NodeName(f"mini-{n:04d}") for n in range(num_machines)]
    per_machine = max(num_jobs * 4 // 5 // num_machines, 1)
    shared = num_jobs - per_machine * num_machines
    prompts = (Prompt(id="p", category="c", text="t"),)
    tasks = tuple(
        Task(checkpoint=CheckpointRef(source="demo"), prompts=prompts, verify_width=1 + n % 5, slots_per_layer=16 + n)
        for n in range(per_machine + shared)
    )
    jobs: list[tuple[int, NodeName | None]] = [(n, name) for n in range(per_machine) for name in names]
    jobs += [(per_machine + n, None) for n in range(shared)]
    return Study(name="simulated", description="", tasks=tasks, path=Path("simulated.toml")), jobs


class Simulation:
    """Owns the ledger, the book and the virtual clock of one run."""

    def __init__(self, ledger: Ledger, *, machines: int, jobs: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.study, self.jobs = make_study(machines, jobs)
        self.study_id, self.task_ids = self.study.id, [task.id for task in self.study.tasks]  # each a hash: taken once
        self.ledger, self.book = ledger, Book(ledger)
        self.now_s = BEGIN_S
        self.names = [NodeName(f"mini-{n:04d}") for n in range(machines)]
        night, short = parse_window("22:00-07:00", timezone="UTC"), parse_window("23:00-05:00", timezone="UTC")
        self.night = intersect(night)
        self.shorter = intersect(night, short)
        self.running: list[_Run] = []
        self.ended: set[str] = set()
        self.history: dict[NodeName, list[float]] = defaultdict(list)
        self.hours = {name: self.random.uniform(0.5, 2.0) for name in self.names}
        self.cancelled = 0
        self.plan_ms: list[float] = []
        self.plan_waiting: list[int] = []
        self.digest = hashlib.sha256()
        self.completions: Counter[JobId] = Counter()
        self.record(
            ScheduleAdded(
                schedule=SCHEDULE,
                study_path="simulated.toml",
                window="22:00-07:00",
                days="mon-sun",
                timezone="UTC",
                repeat="once",
                grace_s=GRACE_S,
            )
        )

    def window(self, node: NodeName) -> Intersection:
        """Every seventh machine has hours of its own."""
        return self.shorter if int(node[-4:]) % 7 == 0 else self.night

    def record(self, *events: Event) -> None:
        self.ledger.append(*events, at_s=self.now_s)
        for event in events:
            self.digest.update(f"{self.now_s} {event}\n".encode())
        self.book.catch_up()

    def run(self, nights: int) -> Outcome:
        end_s = BEGIN_S + nights * 86400
        while self.now_s < end_s:
            self.step()
            if self._over():
                break
            self.now_s += TICK_S
            if not self.running and not self.night.is_open(self.now_s):
                self.now_s = self.night.next_open_s(self.now_s) or end_s
        return self._outcome()

    def step(self) -> None:
        self._follow_schedule()
        ends = [*self._finish(), *self._overrun()]
        if ends:
            self.record(*ends)
        started = self._start()
        if started:
            self.record(*started)

    def _over(self) -> bool:
        studies = self.book.studies
        return bool(studies) and not self.running and not any(is_open(state) for state in studies.values())

    def _follow_schedule(self) -> None:
        (schedule,) = self.ledger.schedules()
        known = standing(schedule, lambda study: study in self.book.studies and is_open(self.book.study(study)))
        for event in due([known], self.now_s):
            if isinstance(event, BeginNight):
                new = self._submission() if event.study_id is None else []
                began = NightBegan(schedule=SCHEDULE, night=event.night, study_id=event.study_id or self.study_id)
                self.record(*new, began)
            else:
                self.record(NightEnded(schedule=SCHEDULE, night=event.night))

    def _submission(self) -> list[Event]:
        planned = [
            TaskPlanned(study_id=self.study_id, task_id=self.task_ids[index], position=index, target=target)
            for index, target in self.jobs
        ]
        return [StudySubmitted(study_id=self.study_id, name=self.study.name, study=self.study.to_json()), *planned]

    def _start(self) -> list[Event]:
        busy = {run.node for run in self.running}
        left = {id(window): window.left_s(self.now_s) for window in (self.night, self.shorter)}
        opens = {id(window): window.next_open_s(self.now_s) for window in (self.night, self.shorter)}
        free = [
            Free(name=name, turns=self.book.turns[name])
            for name in self.names
            if name not in busy and left[id(self.window(name))] > 0
        ]
        expected = {machine.name: self._expected_s(machine.name) for machine in free}

        def fits_night(_entry: Waiting, node: NodeName) -> bool:
            window = id(self.window(node))
            return isinstance(may_start(expected[node], left[window], until_s=opens[window]), Start)

        waiting = list(self.book.waiting())
        began = time.perf_counter()
        starts = plan(waiting, free, fits=lambda _group, _node: True, may_start=fits_night, now_s=self.now_s)
        if waiting and free:
            self.plan_ms.append((time.perf_counter() - began) * 1000)
            self.plan_waiting.append(len(waiting))
        events: list[Event] = []
        for start in starts:
            task_id, target = job_parts(start.job)
            attempt_id = f"{start.number}-{start.job}"
            took_s = self.hours[start.node] * 3600 * self.random.lognormvariate(0, 0.05)
            end_s = self.now_s + left[id(self.window(start.node))]
            heapq.heappush(
                self.running,
                _Run(self.now_s + took_s, start.node, job=start.job, attempt_id=attempt_id, window_end_s=end_s),
            )
            events.append(
                AttemptStarted(
                    study_id=start.study_id,
                    task_id=task_id,
                    attempt_id=attempt_id,
                    number=start.number,
                    node=start.node,
                    build_hash="b",
                    target=target,
                )
            )
        return events

    def _expected_s(self, node: NodeName) -> float:
        return expected_s(self.history[node], first_guess_s(4 * 3600.0, 9 * 3600.0))

    def _finish(self) -> list[Event]:
        events: list[Event] = []
        while self.running and self.running[0].ends_s <= self.now_s:
            events.append(self._end(heapq.heappop(self.running)))
        return events

    def _overrun(self) -> list[Event]:
        kept, events = [], []
        for run in self.running:
            answer = overrun(self.now_s, run.window_end_s, GRACE_S)
            if isinstance(answer, Cancel):
                self.cancelled += 1
                events.append(AttemptCancelled(**self._keys(run), reason=answer.reason, again=True))
            else:
                kept.append(run)
        if events:
            heapq.heapify(kept)
            self.running = kept
        return events

    def _keys(self, run: _Run) -> dict:
        task_id, target = job_parts(run.job)
        return {"study_id": self.study_id, "task_id": task_id, "attempt_id": run.attempt_id, "target": target}

    def _end(self, run: _Run) -> Event:
        keys, tries, draw = self._keys(run), self.book.study(self.study_id).jobs[run.job].tries, self.random.random()
        if draw < LOST:
            retry = isinstance(decide("lost", earlier=tries.lost), Retry)
            return AttemptLost(**keys, reason="no sign of life from its node", retry=retry)
        if draw < PERMANENT:
            kind = "transient" if draw < TRANSIENT else "permanent"
            retry = isinstance(decide(kind, earlier=tries.transient), Retry)
            return AttemptFailed(**keys, kind=kind, error="E", message=f"a {kind} fault", hint="", retry=retry)
        self.completions[run.job] += 1
        self.history[run.node].append(self.hours[run.node] * 3600)
        return AttemptCompleted(**keys, rows={"runs": 1})

    def _outcome(self) -> Outcome:
        state = self.ledger.state(self.study_id)
        jobs = state.jobs if state else {}
        assert len(jobs) == len(self.jobs), "every job is in the ledger"
        (schedule,) = self.ledger.schedules()
        return Outcome(
            done=sum(isinstance(job, Done) for job in jobs.values()),
            failed=dict(Counter(job.message for job in jobs.values() if isinstance(job, Failed))),
            unfinished=dict(Counter(type(job).__name__ for job in jobs.values() if not isinstance(job, Done | Failed))),
            completions=self.completions,
            nights=len(schedule.nights),
            cancelled=self.cancelled,
            digest=self.digest.hexdigest(),
            plan_ms=self.plan_ms,
            plan_waiting=self.plan_waiting,
        )


def simulate(*, machines: int, jobs: int, nights: int, seed: int) -> Outcome:
    """One run from an empty ledger, kept in a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder)) as ledger:
        return Simulation(ledger, machines=machines, jobs=jobs, seed=seed).run(nights)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("machines", 1000), ("jobs", 10000), ("nights", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    worst = 0.0
    for jobs in (asked.jobs // 4, asked.jobs // 2, asked.jobs):
        began = time.perf_counter()
        found = simulate(machines=asked.machines, jobs=jobs, nights=asked.nights, seed=asked.seed)
        worst = median(found.plan_ms)
        full = [ms for ms, waiting in zip(found.plan_ms, found.plan_waiting, strict=True) if waiting > jobs // 2]
        print(
            f"{jobs} jobs on {asked.machines} machines: {found.done} done, failed {found.failed}, "
            f"unfinished {found.unfinished}, {found.cancelled} attempts cut by the window's end, {found.nights} nights, "
            f"{time.perf_counter() - began:.0f} s in all\n"
            f"  planning step: median {worst:.1f} ms of {len(found.plan_ms)}, largest {max(found.plan_ms):.1f} ms; "
            f"while over half of the jobs wait: median {median(full):.1f} ms of {len(full)}"
        )
    return 0 if worst < GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
