"""Stage times of a speculative step, measured with barriers in an instrumented repeat and with nothing in a timed one.

MLX is lazy: without a barrier a stage's work is done by whichever later stage reads a value first. With barriers the
stages are attributed, but the whole is slower. So a repeat has either a `StageClock` that does nothing, or a
`BarrierClock`; rates come from the first kind only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import mlx.core as mx

Stage = Literal["draft", "snapshot", "verify", "commit", "replay", "head_sync", "finalize"]
STAGES: tuple[Stage, ...] = ("draft", "snapshot", "verify", "commit", "replay", "head_sync", "finalize")


class Barrier(Protocol):
    """Handed out by a stage."""

    def barrier(self, *arrays: Any) -> None:
        """Say which arrays this stage was to produce."""
        ...


class StageClock:
    """The clock of timed repeats: stages are named, nothing is measured and nothing is evaluated."""

    @property
    def seconds(self) -> dict[Stage, float] | None:
        """Seconds per stage, or None where they were not measured."""
        return None

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[Barrier]:  # noqa: ARG002 - the name matters to the measuring clock only
        yield self

    def barrier(self, *arrays: Any) -> None:
        """Do nothing."""


class BarrierClock(StageClock):
    """The clock of instrumented repeats: every stage evaluates what it produced before it ends."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._clock = clock

    @property
    def seconds(self) -> dict[Stage, float]:
        return self._seconds

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[Barrier]:
        start = self._clock()
        yield self
        self._seconds[stage] += self._clock() - start

    def barrier(self, *arrays: Any) -> None:
        """Evaluate the arrays."""
        mx.eval(*arrays)
