from __future__ import annotations

from fleet.cluster.standing import standing
from fleet.ledger.schedule_events import NightBegan, NightEnded, ScheduleAdded, ScheduleName, ScheduleRemoved
from fleet.ledger.schedule_state import fold_schedules
from fleet.nodes.window import parse_window
from fleet.schedule.nights import Standing
from fleet.study.study import StudyId

SPEED = ScheduleName("speed")
ADDED = ScheduleAdded(
    schedule=SPEED,
    study_path="/studies/speed.toml",
    window="22:00-07:00",
    days="mon-fri",
    timezone="Europe/Berlin",
    repeat="nightly",
    grace_s=60.0,
)
WINDOW = parse_window("22:00-07:00", days="mon-fri", timezone="Europe/Berlin")


def test_a_new_schedule_stands_without_a_night() -> None:
    (state,) = fold_schedules([(1.0, ADDED)])
    assert standing(state, lambda study: True) == Standing(
        schedule="speed", window=WINDOW, repeat="nightly", grace_s=60.0
    )


def test_the_last_night_and_every_unfinished_study_are_told() -> None:
    studies = [StudyId(f"speed-{n}") for n in range(3)]
    began = [
        (float(n), NightBegan(schedule=SPEED, night=f"2026-03-0{n + 1}", study_id=s)) for n, s in enumerate(studies)
    ]
    (state,) = fold_schedules([(0.0, ADDED), *began])
    found = standing(state, lambda study: study != studies[1])
    assert (found.last_night, found.last_study, found.last_ended) == ("2026-03-03", studies[2], False)
    assert found.unfinished == (studies[0], studies[2])
    (state,) = fold_schedules([(0.0, ADDED), *began, (9.0, NightEnded(schedule=SPEED, night="2026-03-03"))])
    assert standing(state, lambda study: True).last_ended


def test_a_removed_schedule_stands_as_such() -> None:
    (state,) = fold_schedules([(1.0, ADDED), (2.0, ScheduleRemoved(schedule=SPEED))])
    assert standing(state, lambda study: True).removed
