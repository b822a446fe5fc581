"""What a program said last: the line to repeat when it failed."""

from __future__ import annotations

LIMIT = 300
"""Characters that a message has room for."""


def last_line(text: str, default: str = "") -> str:
    """The last line that says something, cut to the room that a message has."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return next((line[:LIMIT] for line in lines if line), default)
