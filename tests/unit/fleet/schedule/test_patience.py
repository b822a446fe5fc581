"""Silence and losses: when an attempt is given up, and when its machine is put aside."""

from __future__ import annotations

import pytest

from fleet.schedule.deadlines import Heard, Limits, Overdue, overdue
from fleet.schedule.quarantine import FIRST_S, LONGEST_S, quarantined_until

LIMITS = Limits(start_s=90, silence_s=20, stall_s=1800)


@pytest.mark.parametrize(
    ("started", "item_s", "progress_s", "now_s", "expected"),
    [
        (False, 0, 0, 90, None),
        (False, 0, 0, 91, Overdue(reason="the node did not start it within 90 s", machine=True)),
        (True, 0, 0, 20, None),
        (True, 0, 0, 21, Overdue(reason="no sign of life from its node for 20 s", machine=True)),
        (True, 1800, 0, 1800, None),
        (True, 1801, 0, 1801, Overdue(reason="the benchmark made no progress for 1800 s", machine=False)),
    ],
)
def test_each_silence_has_its_limit(started, item_s, progress_s, now_s, expected):
    heard = Heard(started=started, item_s=item_s, progress_s=progress_s)
    assert overdue(heard, LIMITS, now_s=now_s) == expected


@pytest.mark.parametrize(
    ("strikes", "seconds"), [(1, None), (2, None), (3, FIRST_S), (4, 2 * FIRST_S), (6, 8 * FIRST_S), (7, LONGEST_S)]
)
def test_a_machine_is_put_aside_after_three_losses_in_a_row_and_for_longer_each_time(strikes, seconds):
    assert quarantined_until(strikes, now_s=1000.0) == (None if seconds is None else 1000.0 + seconds)


def test_a_very_long_series_does_not_overflow():
    assert quarantined_until(10_000, now_s=0.0) == LONGEST_S
