"""How long silence is tolerated: a running attempt's clock readings in, the reason to give it up out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Units: seconds."""

    start_s: float = 90.0
    """From asking for an attempt to its first item."""
    silence_s: float = 20.0
    """Without any item, while one is due at least every five seconds: the supervisor or its node is gone."""
    stall_s: float = 1800.0
    """Without a line of progress: the benchmark hangs. Long, because preparing a large model is one quiet step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """When an attempt last said something. Units: seconds of one monotonic clock; `started` says that it ever began."""

    started: bool
    item_s: float
    progress_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """The attempt is to be given up. `machine`: its machine is to blame, not the benchmark."""

    reason: str
    machine: bool


def overdue(heard: Heard, limits: Limits, *, now_s: float) -> Overdue | None:
    """Whether the attempt is to be given up, and why."""
    silent_s = now_s - heard.item_s
    if not heard.started:
        if silent_s <= limits.start_s:
            return None
        return Overdue(reason=f"the node did not start it within {limits.start_s:g} s", machine=True)
    if silent_s > limits.silence_s:
        return Overdue(reason=f"no sign of life from its node for {limits.silence_s:g} s", machine=True)
    if now_s - heard.progress_s > limits.stall_s:
        return Overdue(reason=f"the benchmark made no progress for {limits.stall_s:g} s", machine=False)
    return None
