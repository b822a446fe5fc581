"""Where the host's time goes, as spans: forwards, layers, waits and reads of one generation, from every thread.

A generation has either a `NoTimeline`, which reads no clock and keeps nothing, or a `Timeline`. No span evaluates
anything: MLX is lazy, so a layer's span is what the host does for it, and the device's work shows as a wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

Name = Literal["forward", "layer", "route_wait", "read_wait", "read", "prefetch"]

_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span of a thread. Units: seconds since the timeline began. None: it belongs to no such thing."""

    name: Name
    phase: str | None
    forward_index: int | None
    layer: int | None
    expert: int | None
    thread: str
    start_s: float
    end_s: float
    num_bytes: int | None


class NoTimeline:
    """The timeline of every timed and instrumented repeat: nothing is read and nothing is kept."""

    def forward(self, phase: str, forward_index: int) -> AbstractContextManager[None]:  # noqa: ARG002
        return _NOTHING

    def span(self, name: Name, layer: int | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        return _NOTHING

    def add(
        self,
        name: Name,
        start: float,
        end: float,
        *,
        layer: int | None = None,
        expert: int | None = None,
        num_bytes: int | None = None,
    ) -> None:
        """Do nothing."""


class Timeline(NoTimeline):
    """Keeps every span. Any thread may add to it: a span is one append, named after the thread that makes it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._origin = clock()
        self._spans: list[Span] = []
        self._forward: tuple[str | None, int | None] = (None, None)

    @contextmanager
    def forward(self, phase: str, forward_index: int) -> Iterator[None]:
        """A span around a whole forward; what any thread adds until the next one begins belongs to it."""
        self._forward = (phase, forward_index)
        with self.span("forward"):
            yield

    @contextmanager
    def span(self, name: Name, layer: int | None = None) -> Iterator[None]:
        """A span around what runs inside."""
        start = self._clock()
        yield
        self.add(name, start, self._clock(), layer=layer)

    def add(
        self,
        name: Name,
        start: float,
        end: float,
        *,
        layer: int | None = None,
        expert: int | None = None,
        num_bytes: int | None = None,
    ) -> None:
        """Keep what was timed elsewhere. Units: `start` and `end` are readings of this timeline's clock."""
        phase, forward_index = self._forward
        self._spans.append(
            Span(
                name=name,
                phase=phase,
                forward_index=forward_index,
                layer=layer,
                expert=expert,
                thread=threading.current_thread().name,
                start_s=start - self._origin,
                end_s=end - self._origin,
                num_bytes=num_bytes,
            )
        )

    @property
    def spans(self) -> tuple[Span, ...]:
        """What was kept up to now, outer spans before the inner ones that begin with them."""
        return tuple(sorted(self._spans, key=lambda span: (span.start_s, -span.end_s)))
