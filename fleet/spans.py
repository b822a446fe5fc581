"""Spans of time in words: read as a user writes them (`30m`), told as people say them (`30 min 00 s`)."""

from __future__ import annotations

import re

from fleet.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SPAN = re.compile(r"(?:([0-9]{1,4})h)?(?:([0-9]{1,5})m)?(?:([0-9]{1,6})s)?")


def span(seconds: float) -> str:
    """A span of time, as short as it can be said."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def parse_span(text: str, *, name: str) -> float:
    """Seconds of a span such as "30m", "1h30m" or "90s"; "0" is none.

    Raises: UsageError naming the value by `name`.
    """
    if text == "0":
        return 0.0
    found = _SPAN.fullmatch(text)
    if not text or not found:
        raise UsageError(f"{name} is {text!r}", 'write a span as "30m", "1h30m", "90s", or "0"')
    return float(sum(int(part) * _SECONDS[unit] for part, unit in zip(found.groups(), "hms", strict=True) if part))
