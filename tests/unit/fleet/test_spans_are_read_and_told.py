from __future__ import annotations

import pytest

from fleet.errors import UsageError
from fleet.spans import parse_span, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (65, "1 min 05 s"), (7260, "2 h 01 min")]
)
def test_a_span_is_told_as_short_as_it_can_be(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1h1m1s", 3661)]
)
def test_a_span_is_read(text: str, seconds: float) -> None:
    assert parse_span(text, name="--grace") == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "1.5h", "30 m", "5m1h", "٣m"])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="--grace is"):
        parse_span(text, name="--grace")
