"""What happens to a schedule, as frozen values: it was added, its nights began and ended, it was removed.

Like every event it is a fact, and carries the texts as they were given, so that an old ledger never depends on today's
reading of them. The subject is `schedule:NAME`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType

from fleet.study.study import StudyId

ScheduleName = NewType("ScheduleName", str)
"""Formed like a study's name."""

Repeat = Literal["nightly", "once"]
"""`nightly`: a new edition of the study each night. `once`: one study, over as many nights as it takes."""

SCHEDULE_SUBJECT = "schedule:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAdded:
    """The study file is to run in the window. The texts are as `fleet.nodes.window` reads them."""

    schedule: ScheduleName
    study_path: str
    window: str
    days: str
    timezone: str
    repeat: Repeat
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRemoved:
    """No night of it begins any more. What was submitted for it stays."""

    schedule: ScheduleName


@dataclass(frozen=True, slots=True, kw_only=True)
class NightBegan:
    """The window opened, and the study is to run in it: a new edition, or the one of an earlier night that goes on."""

    schedule: ScheduleName
    night: str
    study_id: StudyId


@dataclass(frozen=True, slots=True, kw_only=True)
class NightEnded:
    """The window closed and its grace is over."""

    schedule: ScheduleName
    night: str


ScheduleEvent = ScheduleAdded | ScheduleRemoved | NightBegan | NightEnded


def schedule_subject(schedule: ScheduleName) -> str:
    """What the events of a schedule are kept under; no study's id holds a colon."""
    return f"{SCHEDULE_SUBJECT}{schedule}"
