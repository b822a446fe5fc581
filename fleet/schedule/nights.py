"""The night's policy: when a scheduled study begins and goes on, what still starts, and what is ended. Pure functions.

A nightly series promises one complete edition per night. What an edition still owes when its window closes is not
thrown away and does not hold up the next night either: the next night begins its own edition, and on each machine the
old one's jobs run before the new one's. Machines that were done start anew at once; a slow one catches up first. An
edition is carried on like that for one night. What is then left is given up, so that a machine that was away for a week
comes back to two editions and not to seven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fleet.nodes.window import Window
from fleet.spans import span
from fleet.study.study import StudyId

TOO_SHORT = "the night was too short"
"""Why the jobs of an edition are given up that two nights were not enough for."""

RECENT = 5
"""How many of the latest durations say what the next will be: enough for one outlier, few enough to follow a change."""

MARGIN = 1.25
"""What a job may take over its median. Repeats of a task differ by a few per cent, a machine that grew warm by ten."""

GUESS_SHARE = 0.5
"""The share of a window up to which a mere guess may count: more would keep a task that never ran out for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a schedule stands. `unfinished`: its studies with jobs left to run, oldest first."""

    schedule: str
    window: Window
    repeat: Literal["nightly", "once"]
    grace_s: float = 0.0
    last_night: str | None = None
    last_ended: bool = True
    last_study: StudyId | None = None
    unfinished: tuple[StudyId, ...] = ()
    removed: bool = False

    @property
    def is_over(self) -> bool:
        """It begins no night any more: removed, or a `once` whose study is done."""
        done = self.last_study is not None and self.last_study not in self.unfinished
        return self.removed or (self.repeat == "once" and done)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginNight:
    """Begin the night with a study that goes on, or with a new edition when `study_id` is None.

    `give_up`: studies whose waiting jobs are cancelled for good, with `TOO_SHORT`. The caller records the submission and
    the begin of the night in one transaction, or a crash between them begins the night twice.
    """

    schedule: str
    night: str
    study_id: StudyId | None
    give_up: tuple[StudyId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndNight:
    """The window closed and its grace is over: what ran in it can be summed up."""

    schedule: str
    night: str


def due(schedules: Sequence[Standing], now_s: float) -> list[BeginNight | EndNight]:
    """What is to be recorded now, in order: a schedule's last night ends before its next begins.

    A night begins once, at the first question inside its window, also when the head was away at the opening. Nights that
    were missed altogether are caught up by the next one: there is never more than one edition for them. Several schedules
    that are due begin together; the plan gives each machine one job at a time.
    """
    found: list[BeginNight | EndNight] = []
    for schedule in schedules:
        found += [*_ends(schedule, now_s), *_begins(schedule, now_s)]
    return found


def _ends(schedule: Standing, now_s: float) -> list[EndNight]:
    if schedule.last_night is None or schedule.last_ended:
        return []
    opening = schedule.window.opening_of(schedule.last_night)
    is_over = opening is None or now_s >= opening.end_s + schedule.grace_s or bool(_begins(schedule, now_s))
    return [EndNight(schedule=schedule.schedule, night=schedule.last_night)] if is_over else []


def _begins(schedule: Standing, now_s: float) -> list[BeginNight]:
    night = schedule.window.night_of(now_s)
    # A clock that was set back must not begin an earlier night again.
    if night is None or schedule.is_over or (schedule.last_night is not None and night <= schedule.last_night):
        return []
    goes_on = schedule.repeat == "once"
    return [
        BeginNight(
            schedule=schedule.schedule,
            night=night,
            study_id=schedule.last_study if goes_on else None,
            give_up=() if goes_on else tuple(study for study in schedule.unfinished if study != schedule.last_study),
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """There is time enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    """Not in what is left of this window. `until_s`: when to ask again; None when no window of this kind will do."""

    reason: str
    until_s: float | None


def may_start(
    expected_s: float, left_s: float, *, until_s: float | None, whole_s: float | None = None
) -> Start | Postpone:
    """Start a job only when its expected duration fits into what is left of the window.

    `until_s`: when the window opens next. `whole_s`: how long a whole opening is; a job that is known to take longer
    waits for a longer window, not for the next one.
    """
    if left_s <= 0:
        return Postpone(reason="the window is closed", until_s=until_s)
    if expected_s <= left_s:
        return Start()
    if whole_s is not None and expected_s > whole_s:
        return Postpone(
            reason=f"it takes about {span(expected_s)}, and the whole window has {span(whole_s)}: "
            "give it a longer window, or fewer repeats",
            until_s=None,
        )
    return Postpone(
        reason=f"it takes about {span(expected_s)}, and {span(left_s)} of the window are left", until_s=until_s
    )


def expected_s(history: Sequence[float], deadline_s: float) -> float:
    """How long to allow for a job: a quarter over the median of its latest durations, the deadline when there are none.

    `history` is oldest first: of the same task on that machine, else of other tasks of its study there. The median
    forgets the one slow run that every history begins with, when the checkpoint had to be prepared; the largest of the
    last few would hold that against the task for nights. The deadline is an upper bound in either case.
    """
    return min(median(history[-RECENT:]) * MARGIN, deadline_s) if history else deadline_s


def first_guess_s(deadline_s: float, whole_s: float) -> float:
    """The deadline to give `expected_s` for a job without any history, in a window whose opening has `whole_s`."""
    return min(deadline_s, whole_s * GUESS_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Let it run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """End the attempt; the job waits for the next night and the attempt is not held against it."""

    reason: str


def overrun(now_s: float, window_end_s: float, grace_s: float) -> Keep | Cancel:
    """May a running job go on? Until its window ends, and for the grace after that.

    `window_end_s`: the end that was known when the job started, `started_s + left_s(started_s)`.
    """
    if now_s < window_end_s + grace_s:
        return Keep()
    grace = f" and the grace of {span(grace_s)} is over" if grace_s else ""
    return Cancel(reason=f"the window closed{grace}; it is queued for the next night")
