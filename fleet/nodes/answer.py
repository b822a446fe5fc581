"""The two answers to "can this run there?": yes, or no with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The task can run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """The task cannot run there: the reason says what is missing, too small or too large, and what would do."""

    reason: str
