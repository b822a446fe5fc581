"""The state of every schedule: a pure fold over the schedules' events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fleet.ledger.schedule_events import (
    NightBegan,
    NightEnded,
    ScheduleAdded,
    ScheduleEvent,
    ScheduleName,
    ScheduleRemoved,
)
from fleet.study.study import StudyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One night of a schedule and the study that ran in it. Units: seconds since 1970."""

    night: str
    study_id: StudyId
    began_s: float
    ended_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A schedule as the ledger knows it. `nights`: those since it was added, oldest first."""

    added: ScheduleAdded
    added_at_s: float
    removed: bool = False
    nights: tuple[Night, ...] = ()

    @property
    def name(self) -> ScheduleName:
        return self.added.schedule

    @property
    def last(self) -> Night | None:
        return self.nights[-1] if self.nights else None

    def editions(self) -> tuple[StudyId, ...]:
        """Its studies in the order of their first night."""
        return tuple(dict.fromkeys(night.study_id for night in self.nights))


Schedules = tuple[ScheduleState, ...]


def fold_schedules(records: Iterable[tuple[float, ScheduleEvent]]) -> Schedules:
    """The schedules after all events, removed ones included, in the order in which they were added.

    Each event comes with its time.
    """
    states: Schedules = ()
    for at_s, event in records:
        states = apply_schedule(states, event, at_s=at_s)
    return states


def apply_schedule(states: Schedules, event: ScheduleEvent, *, at_s: float) -> Schedules:
    """The schedules after one more event. An event of a schedule that nobody added changes nothing.

    Adding a name again is a schedule of its own: the earlier one stays, removed, with its nights.
    """
    last = max((n for n, state in enumerate(states) if state.name == event.schedule), default=None)
    if isinstance(event, ScheduleAdded):
        return (*_with(states, last, removed=True), ScheduleState(added=event, added_at_s=at_s))
    if last is None:
        return states
    match event:
        case ScheduleRemoved():
            return _with(states, last, removed=True)
        case NightBegan():
            begun = Night(night=event.night, study_id=event.study_id, began_s=at_s)
            return _with(states, last, nights=(*states[last].nights, begun))
        case NightEnded():
            return _with(states, last, nights=tuple(_end(night, event, at_s) for night in states[last].nights))


def _with(states: Schedules, index: int | None, **changes: Any) -> Schedules:
    if index is None:
        return states
    return (*states[:index], dataclasses.replace(states[index], **changes), *states[index + 1 :])


def _end(night: Night, event: NightEnded, at_s: float) -> Night:
    return dataclasses.replace(night, ended_s=at_s) if night.night == event.night and night.ended_s is None else night


def active(states: Schedules) -> Schedules:
    """Those that nobody removed; their names differ."""
    return tuple(state for state in states if not state.removed)


def schedule_of(states: Schedules, study_id: StudyId) -> ScheduleState | None:
    """The schedule that began a study, removed or not: its window is the study's."""
    return next((state for state in reversed(states) if study_id in state.editions()), None)
