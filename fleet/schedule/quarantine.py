"""When a machine is left alone: losses in a row put it aside, for longer each time, and one good attempt clears it."""

from __future__ import annotations

STRIKES = 3
"""Losses in a row before a machine is put aside."""
FIRST_S = 600.0
LONGEST_S = 7200.0


def quarantined_until(strikes: int, *, now_s: float) -> float | None:
    """Until when nothing is started on a machine that lost so many attempts in a row, or None: go on.

    When the time is over it gets one job again: another loss doubles the time, a success ends it.
    """
    if strikes < STRIKES:
        return None
    return now_s + min(FIRST_S * 2.0 ** min(strikes - STRIKES, 16), LONGEST_S)
