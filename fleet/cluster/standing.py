"""Where schedules stand, for the night's policy: the ledger's words read as windows, and which studies have jobs left."""

from __future__ import annotations

from collections.abc import Callable

from fleet.ledger.schedule_events import ScheduleAdded
from fleet.ledger.schedule_state import ScheduleState
from fleet.nodes.window import Window, parse_window
from fleet.schedule.nights import Standing
from fleet.study.study import StudyId


def standing(state: ScheduleState, is_unfinished: Callable[[StudyId], bool]) -> Standing:
    """Put one schedule before the policy. `is_unfinished`: whether a study has a job that runs or waits.

    Raises: UsageError when this machine does not know the schedule's time zone.
    """
    last = state.last
    return Standing(
        schedule=state.name,
        window=window_of(state.added),
        repeat=state.added.repeat,
        grace_s=state.added.grace_s,
        last_night=last.night if last else None,
        last_ended=last is None or last.ended_s is not None,
        last_study=last.study_id if last else None,
        unfinished=tuple(study for study in state.editions() if is_unfinished(study)),
        removed=state.removed,
    )


def window_of(added: ScheduleAdded) -> Window:
    """The window that a schedule was added with."""
    return parse_window(added.window, days=added.days, timezone=added.timezone)
