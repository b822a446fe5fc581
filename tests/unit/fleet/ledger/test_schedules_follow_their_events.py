from __future__ import annotations

from fleet.ledger.schedule_events import (
    NightBegan,
    NightEnded,
    ScheduleAdded,
    ScheduleName,
    ScheduleRemoved,
    schedule_subject,
)
from fleet.ledger.schedule_state import Night, ScheduleState, active, fold_schedules, schedule_of
from fleet.study.study import StudyId

SPEED, OTHER = ScheduleName("speed"), ScheduleName("other")
ONE, TWO = StudyId("speed-1"), StudyId("speed-1-2")


def added(name: ScheduleName = SPEED, window: str = "22:00-07:00") -> ScheduleAdded:
    return ScheduleAdded(
        schedule=name,
        study_path="/studies/speed.toml",
        window=window,
        days="mon-sun",
        timezone="local",
        repeat="nightly",
        grace_s=1800.0,
    )


def test_the_subject_of_a_schedule_is_no_studys() -> None:
    assert schedule_subject(SPEED) == "schedule:speed"


def test_nights_are_kept_in_order_with_their_studies_and_times() -> None:
    (state,) = fold_schedules(
        [
            (1.0, added()),
            (2.0, NightBegan(schedule=SPEED, night="2026-03-01", study_id=ONE)),
            (3.0, NightEnded(schedule=SPEED, night="2026-03-01")),
            (4.0, NightBegan(schedule=SPEED, night="2026-03-02", study_id=TWO)),
            (5.0, NightBegan(schedule=SPEED, night="2026-03-03", study_id=TWO)),
            (6.0, NightEnded(schedule=SPEED, night="2026-03-01")),
        ]
    )
    assert state.nights == (
        Night(night="2026-03-01", study_id=ONE, began_s=2.0, ended_s=3.0),
        Night(night="2026-03-02", study_id=TWO, began_s=4.0),
        Night(night="2026-03-03", study_id=TWO, began_s=5.0),
    )
    assert state.last == state.nights[-1]
    assert state.editions() == (ONE, TWO)


def test_events_touch_their_own_schedule_only_and_unknown_ones_change_nothing() -> None:
    states = fold_schedules(
        [
            (1.0, NightBegan(schedule=SPEED, night="2026-02-28", study_id=ONE)),
            (2.0, added()),
            (3.0, added(OTHER)),
            (4.0, NightBegan(schedule=OTHER, night="2026-03-01", study_id=TWO)),
            (5.0, ScheduleRemoved(schedule=OTHER)),
        ]
    )
    assert states[0] == ScheduleState(added=added(), added_at_s=2.0)
    assert [state.name for state in active(states)] == [SPEED]
    assert states[1].removed


def test_of_one_name_only_the_schedule_that_was_added_last_is_active() -> None:
    states = fold_schedules([(1.0, added()), (2.0, added(window="01:00-02:00"))])
    assert [state.added.window for state in active(states)] == ["01:00-02:00"]


def test_a_name_that_is_added_again_starts_afresh_and_old_studies_keep_their_window() -> None:
    states = fold_schedules(
        [
            (1.0, added()),
            (2.0, NightBegan(schedule=SPEED, night="2026-03-01", study_id=ONE)),
            (3.0, ScheduleRemoved(schedule=SPEED)),
            (4.0, added(window="01:00-02:00")),
            (5.0, NightBegan(schedule=SPEED, night="2026-03-02", study_id=TWO)),
            (6.0, NightEnded(schedule=SPEED, night="2026-03-02")),
        ]
    )
    (again,) = active(states)
    assert (again.added.window, again.nights[0].ended_s) == ("01:00-02:00", 6.0)
    assert [night.study_id for night in again.nights] == [TWO]
    old, new = schedule_of(states, ONE), schedule_of(states, TWO)
    assert old is not None
    assert (old.added.window, old.removed) == ("22:00-07:00", True)
    assert new == again
    assert schedule_of(states, StudyId("nobody's")) is None
