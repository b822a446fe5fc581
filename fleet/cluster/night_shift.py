"""The night shift: begins and ends the nights of schedules, and says which jobs may start in what is left of a window.

The policy is `schedule.nights`; here its answers meet the ledger and the study files. A job of a scheduled study runs in
its schedule's window and in its machine's own; any other job in its machine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from fleet.cluster.book import Book
from fleet.cluster.standing import standing
from fleet.cluster.submit_events import Targets, next_edition, submission
from fleet.errors import UsageError
from fleet.ledger.events import Event, JobDropped
from fleet.ledger.schedule_events import NightBegan, NightEnded, ScheduleName
from fleet.ledger.schedule_state import ScheduleState, active, schedule_of
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Waiting as WaitingState
from fleet.ledger.state import is_open
from fleet.nodes.job import job_parts
from fleet.nodes.node import Node
from fleet.nodes.window import Intersection, Window, parse_window
from fleet.schedule.gates import NO_GATES, Gates, gates_of
from fleet.schedule.nights import (
    TOO_SHORT,
    BeginNight,
    Cancel,
    EndNight,
    Postpone,
    due,
    expected_s,
    first_guess_s,
    may_start,
    overrun,
)
from fleet.schedule.plan import Waiting
from fleet.study.load import load_study
from fleet.study.study import Study, StudyId

DEADLINE_S = 4 * 3600.0
"""What a job without any history may take at most."""
ASK_S = 5.0
"""How often the schedules are looked at."""


class NightShift:
    """Owns the driver's view of windows. `ask` gives a study as it runs here, and who is to run what of it."""

    def __init__(
        self,
        *,
        book: Book,
        ledger: Ledger,
        ask: Callable[[Study], tuple[Study, Targets]],
        clock: Callable[[], float],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._book, self._ledger, self._ask, self._clock, self._say = book, ledger, ask, clock, say
        self._asked_s = -math.inf
        self._said: dict[ScheduleName, str] = {}
        self._windows: dict[tuple[str | None, str | None, str | None], Window | None] = {}
        self.postponed: dict[StudyId, str] = {}
        """Why jobs of a study wait that could run otherwise: the latest reason."""

    def begin_and_end(self) -> None:
        """Record the nights that begin or end now, and submit what runs in them. Mutates: the ledger, the book."""
        now = self._clock()
        if now - self._asked_s < ASK_S:
            return
        self._asked_s = now
        states = {state.name: state for state in active(self._book.schedules)}
        standings = [standing(state, self._is_unfinished) for state in states.values()]
        for step in due(standings, now):
            name = ScheduleName(step.schedule)
            if isinstance(step, EndNight):
                self._book.append(NightEnded(schedule=name, night=step.night))
            else:
                self._begin(states[name], step)

    def _is_unfinished(self, study_id: StudyId) -> bool:
        state = self._book.studies.get(study_id)
        return state is not None and is_open(state)

    def _begin(self, schedule: ScheduleState, step: BeginNight) -> None:
        """Submit the night's study. A file that cannot be read begins no night, and is told once."""
        try:
            events: list[Event] = [event for study in step.give_up for event in self._given_up(study)]
            study_id = step.study_id
            if study_id is None or study_id not in self._book.studies:
                study = next_edition(load_study(Path(schedule.added.study_path)), self._ledger.study_ids())
                study_id = study.id
                study, targets = self._ask(study)
                events += submission(study, self._ledger.state(study_id), targets)
        except UsageError as error:
            if self._said.get(schedule.name) != error.message:
                self._said[schedule.name] = error.message
                self._say(f"schedule {schedule.name} cannot begin its night: {error.message}")
            return
        self._said.pop(schedule.name, None)
        # In one transaction: a crash between them would begin the night twice.
        self._book.append(*events, NightBegan(schedule=schedule.name, night=step.night, study_id=study_id))

    def _given_up(self, study_id: StudyId) -> list[Event]:
        state = self._book.studies.get(study_id)
        jobs = state.jobs.items() if state else ()
        waiting = [job_parts(job) for job, job_state in jobs if isinstance(job_state, WaitingState)]
        return [
            JobDropped(study_id=study_id, task_id=task, target=target, reason=TOO_SHORT) for task, target in waiting
        ]

    def may_start(self, waiting: Waiting, node: Node) -> bool:
        """Whether a job may start on a machine now. Keeps the reason when not. Mutates: `postponed`."""
        windows = self._open_times(waiting.study_id, node)
        if not windows.windows:
            return True
        now = self._clock()
        whole_s = min((opening.length_s for w in windows.windows if (opening := w.opening_at(now))), default=math.inf)
        task_id, _ = job_parts(waiting.job)
        history = self._book.durations(waiting.study_id, task_id, node.name)
        allowed_s = expected_s(history, first_guess_s(DEADLINE_S, whole_s))
        answer = may_start(
            allowed_s, windows.left_s(now), until_s=windows.next_open_s(now), whole_s=whole_s if history else None
        )
        if isinstance(answer, Postpone):
            self.postponed[waiting.study_id] = f"{node.name}: {answer.reason}"
            return False
        self.postponed.pop(waiting.study_id, None)
        return True

    def overran(self, study_id: StudyId, node: Node, started_s: float) -> str | None:
        """Why a running attempt is to be ended, when its window and the grace are over."""
        windows = self._open_times(study_id, node)
        left_s = windows.left_s(started_s)
        if math.isinf(left_s):
            return None
        schedule = schedule_of(self._book.schedules, study_id)
        answer = overrun(self._clock(), started_s + left_s, schedule.added.grace_s if schedule else 0.0)
        return answer.reason if isinstance(answer, Cancel) else None

    def gates(self, study_id: StudyId) -> Gates | None:
        """What must be true of a machine before a job of the study starts: its own gates, the night's, or none."""
        table: Mapping[str, object] | None = self._book.asked(study_id).get("gates")
        if table is not None:
            return gates_of(table, where=study_id)
        gates = Gates() if schedule_of(self._book.schedules, study_id) else NO_GATES
        return None if gates == NO_GATES else gates

    def _open_times(self, study_id: StudyId, node: Node) -> Intersection:
        schedule = schedule_of(self._book.schedules, study_id)
        own = self._window(node.window, node.days, node.timezone)
        added = schedule.added if schedule else None
        whole = self._window(added.window, added.days, added.timezone) if added else None
        return Intersection(windows=tuple(window for window in (whole, own) if window is not None))

    def _window(self, window: str | None, days: str | None, timezone: str | None) -> Window | None:
        if window is None:
            return None
        key = window, days, timezone
        if key not in self._windows:
            self._windows[key] = parse_window(window, days=days or "mon-sun", timezone=timezone or "local")
        return self._windows[key]
