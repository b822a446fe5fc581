"""The night's policy by hand-computed nights, then random weeks with a head that comes and goes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from fleet.nodes.window import parse_window
from fleet.schedule.nights import (
    TOO_SHORT,
    BeginNight,
    Cancel,
    EndNight,
    Keep,
    Postpone,
    Standing,
    Start,
    due,
    expected_s,
    first_guess_s,
    may_start,
    overrun,
)
from fleet.study.study import StudyId

WINDOW = parse_window("22:00-07:00", timezone="UTC")
ONE, TWO, THREE = StudyId("speed-1"), StudyId("speed-1-2"), StudyId("speed-1-3")
HOUR = 3600


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def nightly(**changes) -> Standing:
    return dataclasses.replace(Standing(schedule="speed", window=WINDOW, repeat="nightly"), **changes)


def test_nothing_is_due_by_day_and_the_first_night_begins_with_a_new_edition() -> None:
    assert due([nightly()], at("2026-03-01T21:59:59")) == []
    assert due([nightly()], at("2026-03-01T22:00")) == [
        BeginNight(schedule="speed", night="2026-03-01", study_id=None, give_up=())
    ]


def test_a_night_that_has_begun_does_not_begin_again() -> None:
    begun = nightly(last_night="2026-03-01", last_ended=False, last_study=ONE, unfinished=(ONE,))
    assert due([begun], at("2026-03-01T22:01")) == []
    assert due([begun], at("2026-03-02T06:59")) == []
    assert due([dataclasses.replace(begun, unfinished=())], at("2026-03-02T01:00")) == []


def test_a_head_that_comes_back_in_the_middle_of_a_night_begins_it_then() -> None:
    began = due([nightly()], at("2026-03-02T03:00"))
    assert [event.night for event in began] == ["2026-03-01"]


def test_missed_nights_are_caught_up_by_one_edition() -> None:
    away = nightly(last_night="2026-03-01", last_ended=False, last_study=ONE)
    assert due([away], at("2026-03-05T12:00")) == [EndNight(schedule="speed", night="2026-03-01")]
    assert due([away], at("2026-03-05T23:00")) == [
        EndNight(schedule="speed", night="2026-03-01"),
        BeginNight(schedule="speed", night="2026-03-05", study_id=None),
    ]


def test_a_night_ends_when_its_grace_is_over() -> None:
    begun = nightly(last_night="2026-03-01", last_ended=False, last_study=ONE, grace_s=1800)
    assert due([begun], at("2026-03-02T07:29:59")) == []
    assert due([begun], at("2026-03-02T07:30")) == [EndNight(schedule="speed", night="2026-03-01")]
    assert due([dataclasses.replace(begun, last_ended=True)], at("2026-03-02T07:30")) == []


def test_a_night_whose_grace_reaches_into_the_next_ends_before_that_begins() -> None:
    window = parse_window("00:00-24:00", timezone="UTC")
    begun = nightly(window=window, last_night="2026-03-01", last_ended=False, last_study=ONE, grace_s=HOUR)
    assert due([begun], at("2026-03-02T00:00")) == [
        EndNight(schedule="speed", night="2026-03-01"),
        BeginNight(schedule="speed", night="2026-03-02", study_id=None),
    ]


def test_the_last_edition_goes_on_beside_the_new_one_and_an_older_one_is_given_up() -> None:
    behind = nightly(last_night="2026-03-02", last_study=TWO, unfinished=(ONE, TWO))
    assert due([behind], at("2026-03-03T22:00")) == [
        BeginNight(schedule="speed", night="2026-03-03", study_id=None, give_up=(ONE,))
    ]
    assert TOO_SHORT == "the night was too short"


def test_once_goes_on_with_the_same_study_until_it_is_done() -> None:
    once = nightly(repeat="once", last_night="2026-03-01", last_study=ONE, unfinished=(ONE,))
    assert due([once], at("2026-03-02T22:00")) == [BeginNight(schedule="speed", night="2026-03-02", study_id=ONE)]
    done = dataclasses.replace(once, unfinished=())
    assert done.is_over
    assert due([done], at("2026-03-02T22:00")) == []
    assert not nightly(last_night="2026-03-01", last_study=ONE).is_over
    assert not nightly(repeat="once").is_over


def test_a_removed_schedule_still_ends_its_night_and_begins_none() -> None:
    removed = nightly(removed=True, last_night="2026-03-01", last_ended=False, last_study=ONE)
    assert due([removed], at("2026-03-02T23:00")) == [EndNight(schedule="speed", night="2026-03-01")]


def test_a_clock_that_is_set_back_begins_no_earlier_night() -> None:
    assert due([nightly(last_night="2026-03-05", last_study=ONE)], at("2026-03-04T23:00")) == []


def test_several_schedules_begin_together_each_once() -> None:
    names = [f"s{n}" for n in range(5)]
    found = due([nightly(schedule=name) for name in names], at("2026-03-01T23:00"))
    assert [event.schedule for event in found] == names


@dataclass
class _Head:
    """Follows `due` as a driver does, and keeps what it was told. Editions are numbered."""

    state: Standing
    begun: list[tuple[str, StudyId]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    given_up: list[StudyId] = field(default_factory=list)
    made: int = 0

    def ask(self, now_s: float) -> None:
        for event in due([self.state], now_s):
            match event:
                case EndNight():
                    self.ended.append(event.night)
                    self.state = dataclasses.replace(self.state, last_ended=True)
                case BeginNight():
                    self._begin(event)

    def _begin(self, event: BeginNight) -> None:
        study = event.study_id
        if study is None:
            self.made += 1
            study = StudyId(f"e{self.made}")
        self.given_up += event.give_up
        left = tuple(s for s in self.state.unfinished if s not in event.give_up and s != study)
        self.begun.append((event.night, study))
        self.state = dataclasses.replace(
            self.state, last_night=event.night, last_ended=False, last_study=study, unfinished=(*left, study)
        )

    def finish_first(self) -> None:
        self.state = dataclasses.replace(self.state, unfinished=self.state.unfinished[1:])


@given(
    hours=st.lists(st.floats(0.1, 60), min_size=1, max_size=60),
    finishes=st.lists(st.booleans(), min_size=60, max_size=60),
    repeat=st.sampled_from(["nightly", "once"]),
)
def test_whenever_the_head_is_awake_no_night_begins_twice_and_at_most_two_editions_live(
    hours: list[float], finishes: list[bool], repeat
) -> None:
    head = _Head(nightly(repeat=repeat))
    now_s = at("2026-03-01T12:00")
    for hour, finish in zip(hours, finishes, strict=False):
        now_s += hour * HOUR
        head.ask(now_s)
        begun = list(head.begun)
        head.ask(now_s)
        assert head.begun == begun, "asking again changes nothing"
        night = WINDOW.night_of(now_s)
        assert night is None or head.state.is_over or head.state.last_night == night, "an open window has its night"
        assert len(head.state.unfinished) <= 2
        if finish and head.state.unfinished:
            head.finish_first()
    nights = [night for night, _ in head.begun]
    assert nights == sorted(set(nights))
    assert head.ended == nights[: len(head.ended)]
    assert len(head.ended) >= len(nights) - 1
    if repeat == "once":
        assert head.made <= 1
        assert not head.given_up


def test_a_job_starts_only_when_what_it_takes_fits_what_is_left() -> None:
    tomorrow = at("2026-03-02T22:00")
    assert may_start(3600, 3600, until_s=tomorrow) == Start()
    assert may_start(3601, 3600, until_s=tomorrow) == Postpone(
        reason="it takes about 1 h 00 min, and 1 h 00 min of the window are left", until_s=tomorrow
    )
    assert may_start(60, 0.0, until_s=tomorrow) == Postpone(reason="the window is closed", until_s=tomorrow)
    assert may_start(10**9, float("inf"), until_s=None) == Start()


def test_a_job_longer_than_any_window_is_told_so_and_waits_for_no_next_one() -> None:
    answer = may_start(10 * HOUR, 9 * HOUR, until_s=at("2026-03-02T22:00"), whole_s=9 * HOUR)
    assert isinstance(answer, Postpone)
    assert answer.until_s is None
    assert "the whole window has 9 h 00 min" in answer.reason


def test_the_expected_duration_is_a_quarter_over_the_median_of_the_latest() -> None:
    assert expected_s([], 7200) == 7200
    assert expected_s([600], 7200) == 750
    assert expected_s([5000, 600, 620, 610, 600], 7200) == 610 * 1.25
    assert expected_s([9000] * 5 + [100] * 5, 7200) == 125
    assert expected_s([7000], 7200) == 7200


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=12), st.floats(1, 1e6))
def test_the_expected_duration_is_never_over_the_deadline_nor_under_every_duration(history, deadline_s) -> None:
    found = expected_s(history, deadline_s)
    assert found <= deadline_s
    assert found == deadline_s or found >= min(history)


def test_a_guess_takes_at_most_half_of_a_window() -> None:
    assert first_guess_s(12 * HOUR, 9 * HOUR) == 4.5 * HOUR
    assert first_guess_s(HOUR, 9 * HOUR) == HOUR


def test_what_runs_at_the_end_has_its_grace_and_is_then_queued_for_the_next_night() -> None:
    end_s = at("2026-03-02T07:00")
    assert overrun(end_s - 1, end_s, 0) == Keep()
    assert overrun(end_s, end_s, 0) == Cancel(reason="the window closed; it is queued for the next night")
    assert overrun(end_s + 1799, end_s, 1800) == Keep()
    assert overrun(end_s + 1800, end_s, 1800) == Cancel(
        reason="the window closed and the grace of 30 min 00 s is over; it is queued for the next night"
    )
