"""When may work run? A window such as 22:00-07:00 on some days in some time zone: wall-clock words in, moments out.

The one idea: each day on the calendar has at most one opening, from one moment to another. Every question (open now?
how long still? when next?) is asked of those openings, so a night on which the clock is set back is an hour longer by
itself. Moments are seconds since 1970; nothing here reads the clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from fleet.errors import UsageError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = "mon-sun"
ALWAYS = "00:00-24:00"
LOCAL = "local"
"""The word for the time zone of the machine that reads the window."""

LOCAL_ZONE_FILE = Path("/etc/localtime")
"""Where macOS and Linux keep the rules of the machine's own time zone."""

MINUTES_PER_DAY = 24 * 60
_SEARCH_DAYS = 30
"""An opening can be lost in a clock change, or in a calendar day that a country left out; four in a row cannot."""

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|(24):(00)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One time from `begin_s` to just before `end_s`. `night`: the date on which it began, as in 2026-03-01."""

    night: str
    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The times of a week at which work may run; an opening belongs to the day on which it begins.

    `begin` and `end` count minutes from that day's midnight; an `end` over 24 hours lies in the next day.
    """

    begin: int
    end: int
    days: frozenset[int]
    zone: tzinfo = field(repr=False)

    @property
    def is_always(self) -> bool:
        return self.end - self.begin == MINUTES_PER_DAY and len(self.days) == len(DAYS)

    def is_open(self, at_s: float) -> bool:
        return self.opening_at(at_s) is not None

    def opening_at(self, at_s: float) -> Opening | None:
        """The opening that holds a moment."""
        around = self._openings(from_day=self._day(at_s) - timedelta(days=1), num_days=3)
        return next((opening for opening in around if opening.begin_s <= at_s < opening.end_s), None)

    def opening_of(self, night: str) -> Opening | None:
        """The opening that began on a date, or None when none does."""
        return next(self._openings(from_day=date.fromisoformat(night), num_days=1), None)

    def night_of(self, at_s: float) -> str | None:
        """The identity of the night that a moment is in: the date on which its opening began."""
        opening = self.opening_at(at_s)
        return opening.night if opening else None

    def left_s(self, at_s: float) -> float:
        """Seconds until it closes: 0 when it is closed, infinite when it never closes.

        Openings that touch, as whole days do, count as one.
        """
        opening = self.opening_at(at_s)
        if opening is None:
            return 0.0
        if self.is_always:
            return math.inf
        return self._last_touching(opening).end_s - at_s

    def next_open_s(self, at_s: float) -> float | None:
        """The first moment after `at_s` at which it opens, having been closed. None when it never closes."""
        if self.is_always:
            return None
        opening = self.opening_at(at_s)
        closed_s = self._last_touching(opening).end_s if opening else at_s
        later = self._openings(from_day=self._day(closed_s) - timedelta(days=1), num_days=_SEARCH_DAYS)
        return next((opening.begin_s for opening in later if opening.begin_s > closed_s), None)

    def _last_touching(self, opening: Opening) -> Opening:
        following = date.fromisoformat(opening.night) + timedelta(days=1)
        for later in self._openings(from_day=following, num_days=_SEARCH_DAYS):
            if later.begin_s > opening.end_s:
                break
            opening = later
        return opening

    def _openings(self, *, from_day: date, num_days: int) -> Iterator[Opening]:
        """The openings of some days in order. One that a clock change leaves without a second is none."""
        for day in (from_day + timedelta(days=n) for n in range(num_days)):
            if day.weekday() in self.days:
                begin_s, end_s = _moment(day, self.begin, self.zone), _moment(day, self.end, self.zone)
                if begin_s < end_s:
                    yield Opening(night=day.isoformat(), begin_s=begin_s, end_s=end_s)

    def _day(self, at_s: float) -> date:
        return datetime.fromtimestamp(at_s, self.zone).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Intersection:
    """Open when every one of its windows is: a study's and a machine's own. Without any window it is always open."""

    windows: tuple[Window, ...] = ()

    def is_open(self, at_s: float) -> bool:
        return all(window.is_open(at_s) for window in self.windows)

    def left_s(self, at_s: float) -> float:
        """Seconds until the first of them closes: 0 when one is closed, infinite when none ever closes."""
        return min((window.left_s(at_s) for window in self.windows), default=math.inf)

    def next_open_s(self, at_s: float) -> float | None:
        """The first moment after `at_s` at which it opens, having been closed. None when that does not happen in weeks.

        Windows that never meet have no such moment.
        """
        last_s = at_s + _SEARCH_DAYS * 86400
        if self.is_open(at_s):
            at_s += self.left_s(at_s)
        while at_s < last_s:
            waits = [window.next_open_s(at_s) for window in self.windows if not window.is_open(at_s)]
            if not waits:
                return at_s
            at_s = max(wait if wait is not None else math.inf for wait in waits)
        return None


def intersect(*windows: Window) -> Intersection:
    return Intersection(windows=windows)


def parse_window(
    text: str, *, days: str = EVERY_DAY, timezone: str = LOCAL, local_file: Path = LOCAL_ZONE_FILE
) -> Window:
    """Read a window as a user writes it.

    Raises: UsageError naming the part that is wrong and what is allowed there.
    """
    begin_text, dash, end_text = text.partition("-")
    if not dash:
        raise UsageError(f"window is {text!r}: it has no '-'", f'write it as "22:00-07:00"; "{ALWAYS}" is always')
    begin, end = _minutes(begin_text, "begins", text), _minutes(end_text, "ends", text)
    if begin == MINUTES_PER_DAY:
        raise UsageError(f"window is {text!r}: it begins at 24:00", "begin at 00:00 of the next day")
    if begin == end:
        raise UsageError(f"window is {text!r}: it begins and ends at the same time", f'a whole day is "{ALWAYS}"')
    return Window(
        begin=begin,
        end=end if end > begin else end + MINUTES_PER_DAY,
        days=parse_days(days),
        zone=parse_timezone(timezone, local_file=local_file),
    )


def parse_days(text: str) -> frozenset[int]:
    """Days such as "mon-fri", "sat,sun" or "fri-mon"; Monday is 0.

    Raises: UsageError naming the word that is no day.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        begin = _weekday(first, text)
        end = _weekday(last, text) if dash else begin
        found.update((begin + n) % len(DAYS) for n in range((end - begin) % len(DAYS) + 1))
    return frozenset(found)


def parse_timezone(name: str, *, local_file: Path = LOCAL_ZONE_FILE) -> tzinfo:
    """A zone by its IANA name, or "local"; a machine that does not say where it is counts in UTC.

    Raises: UsageError for a name that this machine does not know.
    """
    if name == LOCAL:
        try:
            with local_file.open("rb") as file:
                return ZoneInfo.from_file(file, key=LOCAL)
        except (OSError, ValueError):
            return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"timezone is {name!r}: no such time zone is known here",
            f'use an IANA name such as "Europe/Berlin", "UTC", or "{LOCAL}"',
        ) from None


def _minutes(text: str, what: str, window: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise UsageError(
            f"window is {window!r}: it {what} at {text.strip()!r}", "write times as HH:MM, from 00:00 to 24:00"
        )
    hours, minutes = (part for part in found.groups() if part is not None)
    return int(hours) * 60 + int(minutes)


def _weekday(word: str, days: str) -> int:
    try:
        return DAYS.index(word.strip())
    except ValueError:
        raise UsageError(
            f"days is {days!r}: {word.strip()!r} is no day", f'use {", ".join(DAYS)}, as in "mon-fri" or "sat,sun"'
        ) from None


def _moment(day: date, minutes: int, zone: tzinfo) -> float:
    """The first moment at which a clock on the wall shows a day's time or a later one.

    A time that a clock change repeats is its first pass; one that it leaves out is the change itself.
    """
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    by_old_offset = wall.replace(tzinfo=zone).timestamp()
    if datetime.fromtimestamp(by_old_offset, zone).replace(tzinfo=None) == wall:
        return by_old_offset
    before, after = int(wall.replace(tzinfo=zone, fold=1).timestamp()), int(by_old_offset)
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).replace(tzinfo=None) < wall:
            before = middle
        else:
            after = middle
    return float(after)
