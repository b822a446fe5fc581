"""Windows: hand-computed nights, then every minute of a year in zones with odd clocks, against a slow reference."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import UsageError
from fleet.nodes.window import ALWAYS, DAYS, Window, intersect, parse_window

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def night(text: str = "22:00-07:00", days: str = "mon-sun", zone: str = BERLIN) -> Window:
    return parse_window(text, days=days, timezone=zone)


def test_a_night_over_midnight_belongs_to_the_evening_on_which_it_begins() -> None:
    window = night(days="fri")
    friday, saturday = at("2026-01-09T23:30"), at("2026-01-10T06:59")
    assert window.night_of(friday) == window.night_of(saturday) == "2026-01-09"
    assert window.left_s(friday) == 7.5 * 3600
    assert window.left_s(saturday) == 60
    assert window.night_of(at("2026-01-10T07:00")) is None
    assert window.night_of(at("2026-01-10T22:00")) is None
    assert window.next_open_s(saturday) == at("2026-01-16T22:00")


def test_the_first_moment_is_in_and_the_last_is_not() -> None:
    window = night("09:00-17:00")
    assert not window.is_open(at("2026-01-09T09:00") - 0.001)
    assert window.is_open(at("2026-01-09T09:00"))
    assert window.is_open(at("2026-01-09T17:00") - 0.001)
    assert not window.is_open(at("2026-01-09T17:00"))
    assert window.left_s(at("2026-01-09T17:00")) == 0.0


def test_next_is_after_now_even_at_the_moment_of_opening() -> None:
    window = night("09:00-17:00")
    assert window.next_open_s(at("2026-01-09T08:59")) == at("2026-01-09T09:00")
    assert window.next_open_s(at("2026-01-09T09:00")) == at("2026-01-10T09:00")


def test_a_night_is_an_hour_longer_when_the_clock_goes_back_and_shorter_when_forward() -> None:
    window = night()
    assert window.left_s(at("2026-10-24T22:00")) == 10 * 3600
    assert window.left_s(at("2026-03-28T22:00")) == 8 * 3600
    assert window.left_s(at("2026-06-01T22:00")) == 9 * 3600


def test_a_start_that_the_clock_leaves_out_is_the_jump_and_a_repeated_one_is_its_first_pass() -> None:
    window = night("02:30-06:00")
    jump = at("2026-03-29T03:00")
    assert not window.is_open(jump - 1)
    assert window.is_open(jump)
    assert window.left_s(jump) == 3 * 3600
    first = at("2026-10-25T02:30", fold=0)
    assert not window.is_open(first - 1)
    assert window.left_s(first) == 4.5 * 3600


def test_a_window_that_lies_in_the_hour_left_out_does_not_open_that_day() -> None:
    window = night("02:10-02:50")
    assert window.opening_of("2026-03-29") is None
    assert window.next_open_s(at("2026-03-28T12:00")) == at("2026-03-30T02:10")


def test_an_opening_goes_on_while_the_clock_is_back_in_the_day_before() -> None:
    window = night("00:00-00:30", zone="America/St_Johns")  # at 00:01 the clock there went back to 23:01
    begin = at("2010-11-07T00:00", "America/St_Johns")
    assert window.night_of(begin + 600) == "2010-11-07"
    assert window.left_s(begin) == 1.5 * 3600


def test_always_never_closes_and_still_tells_its_days_apart() -> None:
    window = night(ALWAYS)
    noon = at("2026-03-29T12:00")
    assert window.left_s(noon) == math.inf
    assert window.next_open_s(noon) is None
    assert window.night_of(noon) == "2026-03-29"


def test_days_that_touch_are_one_time_to_work_in() -> None:
    window = night(ALWAYS, days="mon-fri")
    monday = at("2026-01-05T00:00")
    assert window.left_s(monday) == 5 * 86400
    assert window.next_open_s(monday) == at("2026-01-12T00:00")


def test_the_identity_of_a_night_finds_its_times_again() -> None:
    window = night(days="mon-fri")
    opening = window.opening_of("2026-01-09")
    assert opening is not None
    assert (opening.begin_s, opening.end_s) == (at("2026-01-09T22:00"), at("2026-01-10T07:00"))
    assert opening.length_s == 9 * 3600
    assert window.opening_of("2026-01-10") is None


@pytest.mark.parametrize(
    ("days", "expected"),
    [("mon-sun", "0123456"), ("mon-fri", "01234"), ("sat,sun", "56"), ("fri-mon", "0456"), ("tue, thu-fri", "134")],
)
def test_days_are_names_lists_and_spans(days: str, expected: str) -> None:
    assert parse_window("22:00-07:00", days=days).days == {int(day) for day in expected}


@pytest.mark.parametrize(
    ("text", "days", "zone", "part", "allowed"),
    [
        ("22:00", "mon-sun", "UTC", "it has no '-'", "22:00-07:00"),
        ("22-07:00", "mon-sun", "UTC", "it begins at '22'", "HH:MM"),
        ("22:00-7:00", "mon-sun", "UTC", "it ends at '7:00'", "HH:MM"),
        ("22:00-25:00", "mon-sun", "UTC", "it ends at '25:00'", "24:00"),
        ("24:00-07:00", "mon-sun", "UTC", "it begins at 24:00", "00:00"),
        ("22:00-22:00", "mon-sun", "UTC", "at the same time", "00:00-24:00"),
        ("٢٢:00-07:00", "mon-sun", "UTC", "begins", "HH:MM"),
        ("22:00-07:00", "mon-fry", "UTC", "'fry' is no day", "mon, tue"),
        ("22:00-07:00", "", "UTC", "'' is no day", "mon-fri"),
        ("22:00-07:00", "mon-", "UTC", "'' is no day", "mon-fri"),
        ("22:00-07:00", "mon-sun", "Europe/Berlyn", "Europe/Berlyn", "Europe/Berlin"),
        ("22:00-07:00", "mon-sun", "Europe", "'Europe'", "IANA"),
        ("22:00-07:00", "mon-sun", "../../etc/passwd", "passwd", "IANA"),
        ("22:00-07:00", "mon-sun", "", "''", "IANA"),
    ],
)
def test_a_wrong_part_is_named_with_what_is_allowed(text: str, days: str, zone: str, part: str, allowed: str) -> None:
    with pytest.raises(UsageError) as found:
        parse_window(text, days=days, timezone=zone)
    assert part in found.value.message
    assert allowed in found.value.hint


def test_local_is_the_zone_of_the_machine_and_utc_where_it_names_none(tmp_path: Path) -> None:
    rules = next(path for path in (Path("/usr/share/zoneinfo"), Path("/usr/lib/zoneinfo")) if path.is_dir())
    here = parse_window("22:00-07:00", timezone="local", local_file=rules / BERLIN)
    assert here.left_s(at("2026-10-24T22:00")) == 10 * 3600
    (tmp_path / "garbage").write_bytes(b"no rules")
    for nowhere in (tmp_path / "none", tmp_path / "garbage"):
        assert parse_window("22:00-07:00", timezone="local", local_file=nowhere).zone is UTC


def test_an_intersection_is_open_when_all_are_and_closes_with_the_first() -> None:
    both = intersect(night("22:00-07:00"), night("00:00-05:00", days="sat,sun"))
    friday = at("2026-01-09T23:00")
    assert not both.is_open(friday)
    assert both.next_open_s(friday) == at("2026-01-10T00:00")
    assert both.left_s(at("2026-01-10T01:00")) == 4 * 3600
    assert both.next_open_s(at("2026-01-10T01:00")) == at("2026-01-11T00:00")


def test_windows_that_never_meet_never_open_and_no_windows_never_close() -> None:
    never = intersect(night("22:00-07:00"), night("08:00-17:00"))
    assert never.next_open_s(at("2026-01-09T23:00")) is None
    assert not never.is_open(at("2026-01-09T23:00"))
    assert intersect().left_s(0) == math.inf
    assert intersect().next_open_s(0) is None


YEARS = (
    (BERLIN, 2026),
    ("America/Sao_Paulo", 2018),  # the clock changes at midnight
    ("America/St_Johns", 2010),  # and here at a minute past midnight, back into the day before
    ("Australia/Lord_Howe", 2025),  # by half an hour
    ("Pacific/Apia", 2011),  # without 30 December
)


@dataclass(frozen=True)
class _Year:
    """Every minute of a year: `latest[n]` is the latest wall time, in minutes, that was shown up to minute n."""

    begin_s: int
    first: date
    latest: tuple[int, ...]

    def first_minute(self, day: date, minutes: int) -> int:
        wanted = (day - date(1970, 1, 1)).days * 1440 + minutes
        return bisect.bisect_left(self.latest, wanted)


@cache
def year_of(zone: str, year: int) -> _Year:
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    rules = ZoneInfo(zone)
    walls: list[int] = []
    for n in range(365 * 1440):
        wall = datetime.fromtimestamp(begin + 60 * n, rules)
        walls.append((wall.toordinal() - 719163) * 1440 + wall.hour * 60 + wall.minute)
    return _Year(begin, date(year, 1, 1), tuple(itertools.accumulate(walls, max)))


@dataclass(frozen=True)
class _Walk:
    """What a walk over the minutes of a year saw: the first and the last minute of each opening, and its night."""

    spans: tuple[tuple[int, int, str], ...]

    def night(self, minute: int) -> str | None:
        return next((night for begin, end, night in self._from(minute) if begin <= minute < end), None)

    def closes(self, minute: int) -> int:
        """The first minute from here on that lies in no opening."""
        for begin, end, _ in self._from(minute):
            if not begin <= minute < end:
                return minute
            minute = end
        return minute

    def opens(self, minute: int) -> int:
        """The first minute from here on that lies in an opening."""
        return max(minute, next(begin for begin, _, _ in self._from(minute)))

    def _from(self, minute: int) -> tuple[tuple[int, int, str], ...]:
        return self.spans[bisect.bisect_right(self.spans, minute, key=lambda span: span[1]) :]


@cache
def walk(zone: str, year: int, text: str, days: frozenset[int]) -> _Walk:
    """Each day's opening, from the first minute that shows its begin to the first that shows its end."""
    known, begin, end = year_of(zone, year), *(int(part[:2]) * 60 + int(part[3:]) for part in text.split("-"))
    end += 1440 if end <= begin else 0
    found = [
        (known.first_minute(day, begin), known.first_minute(day, end), day.isoformat())
        for day in (known.first + timedelta(days=n) for n in range(2, 362))
        if day.weekday() in days
    ]
    return _Walk(tuple(span for span in found if span[0] < span[1]))


_TIMES = ("00:00-24:00", "22:00-07:00", "02:30-06:15", "23:15-00:05", "00:00-00:30", "02:10-02:50")
_TEXTS = st.sampled_from(_TIMES)
_DAYS = st.sampled_from([frozenset(range(7)), frozenset(range(5)), frozenset({6})])
EDGE_DAYS = 12
"""The reference knows nothing of what began before the year or ends after it."""


@settings(max_examples=400, deadline=None)
@given(place=st.sampled_from(YEARS), text=_TEXTS, days=_DAYS, data=st.data())
def test_every_answer_equals_a_walk_over_all_minutes_of_a_year(
    place: tuple[str, int], text: str, days: frozenset[int], data: st.DataObject
) -> None:
    walked = walk(*place, text, days)
    window = parse_window(text, days=",".join(DAYS[day] for day in days), timezone=place[0])
    edges = st.sampled_from([edge for span in walked.spans[12:-12] for edge in span[:2]])
    near = st.builds(lambda n, by: n + by, edges, st.sampled_from([-2, -1, 0, 1]))
    minute = data.draw(st.one_of(st.integers(EDGE_DAYS * 1440, (365 - EDGE_DAYS) * 1440), near))
    at_s = year_of(*place).begin_s + 60 * minute + data.draw(st.sampled_from([0.0, 0.5, 59.0]))

    assert window.night_of(at_s) == walked.night(minute)
    if window.is_always:
        assert window.left_s(at_s) == math.inf
        return
    closes = walked.closes(minute)
    closes_s = year_of(*place).begin_s + 60 * closes
    assert window.left_s(at_s) == (closes_s - at_s if closes > minute else 0.0)
    assert window.next_open_s(at_s) == closes_s + 60 * (walked.opens(closes) - closes)


@settings(max_examples=100, deadline=None)
@given(place=st.sampled_from(YEARS), texts=st.lists(st.tuples(_TEXTS, _DAYS), min_size=2, max_size=3), data=st.data())
def test_an_intersection_equals_the_walk_over_all_of_its_windows(
    place: tuple[str, int], texts: list[tuple[str, frozenset[int]]], data: st.DataObject
) -> None:
    walks = [walk(*place, text, days) for text, days in texts]
    both = intersect(
        *(parse_window(t, days=",".join(DAYS[day] for day in days), timezone=place[0]) for t, days in texts)
    )
    minute = data.draw(st.integers(EDGE_DAYS * 1440, 300 * 1440))
    at_s = year_of(*place).begin_s + 60 * minute
    edges = sorted({minute} | {edge for w in walks for span in w.spans for edge in span[:2] if edge > minute})
    states = [(edge, all(w.night(edge) is not None for w in walks)) for edge in edges if edge < minute + 20 * 1440]

    assert both.is_open(at_s) == states[0][1]
    closes = next((edge for edge, is_open in states if not is_open), None)
    if closes is None:
        assert both.left_s(at_s) > 19 * 86400
        return
    assert both.left_s(at_s) == 60 * (closes - minute)
    opens = next((edge for edge, is_open in states if is_open and edge > closes), None)
    if opens is not None:
        assert both.next_open_s(at_s) == at_s + 60 * (opens - minute)
