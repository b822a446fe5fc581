"""The retry policy as one table: what happens to a task whose attempt ended badly."""

from __future__ import annotations

from dataclasses import dataclass

from worker.contract.errors import FailureKind

LIMITS: dict[FailureKind, int] = {"permanent": 0, "transient": 2, "lost": 3}
"""How often a task is tried again after each kind of failure."""

DELAYS_S: dict[FailureKind, float] = {"permanent": 0.0, "transient": 5.0, "lost": 0.0}
"""How long the machine is left alone first: a lock that is held or a full disk needs a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Try again, not before `delay_s` from now."""

    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The task has failed."""


def decide(kind: FailureKind, *, earlier: int) -> Retry | GiveUp:
    """The policy's answer to one more failure of a kind that the task has met `earlier` times before."""
    return Retry(delay_s=DELAYS_S[kind] * (earlier + 1)) if earlier < LIMITS[kind] else GiveUp()
