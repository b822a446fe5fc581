"""What the pools saw: counts by phase, and on request every routing decision.

One `Telemetry` serves all layers of a model. It is reset before every repeat. In a model whose experts are all resident
the routed ids stay on the device while the run is timed; they are read and counted when the repeat is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.measure.timeline import NoTimeline

Phase = Literal["prefill", "decode", "verify"]
PHASES: tuple[Phase, ...] = ("prefill", "decode", "verify")


@dataclass(slots=True)
class PhaseCounters:
    """Sums over all layers and forwards of one phase; the columns of `schema.COUNTERS`.

    `num_routed` counts distinct experts per forward and layer; each was there (a hit), or read on demand (a disk load), or
    on its way already (late).
    """

    num_forwards: int = 0
    num_routed: int = 0
    num_hits: int = 0
    num_disk_loads: int = 0
    disk_bytes: int = 0
    num_predicted: int = 0
    num_prefetch_submitted: int = 0
    num_prefetch_loads: int = 0
    num_prefetch_hits: int = 0
    num_prefetch_evicted: int = 0
    num_prefetch_cancelled: int = 0
    num_prefetch_dropped: int = 0
    num_misses_predicted_late: int = 0
    num_misses_predicted_evicted: int = 0
    num_misses_predicted_dropped: int = 0
    num_misses_unpredicted: int = 0
    num_layers_fast: int = 0
    num_layers_fallback: int = 0
    num_repairs: int = 0
    route_wait_s: float = 0.0
    read_wait_s: float = 0.0

    def to_row(self, *, prefetching: bool) -> dict[str, int | float | None]:
        """The columns; without prefetch, what it would have counted was not measured."""
        row = asdict(self)
        return row if prefetching else {name: None if name in PREFETCH_COLUMNS else row[name] for name in row}


PREFETCH_COLUMNS = tuple(f.name for f in fields(PhaseCounters) if "predicted" in f.name or "prefetch" in f.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """One layer of one forward. Shapes: `experts` [forward width, experts per token]."""

    phase: Phase
    forward_index: int
    layer: int
    experts: NDArray[np.int64]
    num_union: int
    num_hits: int
    num_late: int = 0

    @property
    def forward_width(self) -> int:
        return self.experts.shape[0]


@dataclass(slots=True)
class _Deferred:
    phase: Phase
    forward_index: int
    layers: list[int] = field(default_factory=list)
    indices: list[mx.array] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    """Instead of `indices`, the distinct experts of each layer: one token never routes to an expert twice."""


class Telemetry:
    """Counters, while `recording` the routing trace, and on request the timeline of the current repeat."""

    def __init__(self) -> None:
        self.reset()

    def reset(
        self,
        *,
        recording: bool = False,
        on_generation: Callable[[], None] | None = None,
        timeline: NoTimeline | None = None,
    ) -> None:
        """Forget everything and say whether routing decisions are to be kept, and on which timeline spans are put.

        `on_generation` is called once, when the first forward after the prompt's begins.
        """
        self.timeline = timeline or NoTimeline()
        self._on_generation = on_generation
        self.counters: dict[Phase, PhaseCounters] = {}
        self.recording = recording
        self.routings: list[Routing] = []
        self._deferred: list[_Deferred] = []
        self._forward_index = -1
        self._phase: Phase = "prefill"

    @contextmanager
    def forward(self, phase: Phase) -> Iterator[None]:
        """Everything routed inside belongs to one forward of this phase."""
        if phase != "prefill" and self._on_generation is not None:
            self._on_generation()
            self._on_generation = None
        self._phase = phase
        self._forward_index += 1
        self.current.num_forwards += 1
        self._open = _Deferred(phase, self._forward_index)
        with self.timeline.forward(phase, self._forward_index):
            yield
        if self._open.layers:
            self._deferred.append(self._open)

    @property
    def phase(self) -> Phase:
        """The phase of the forward that runs, or ran last."""
        return self._phase

    @property
    def current(self) -> PhaseCounters:
        return self.counters.setdefault(self._phase, PhaseCounters())

    def routed(
        self,
        layer: int,
        ids: NDArray[np.int64],
        *,
        num_union: int,
        num_hits: int,
        payload_bytes: int,
        num_late: int = 0,
        fast: bool = False,
    ) -> None:
        """Count one layer whose ids the host has read, after it ran (`fast`) or before. Shapes: `ids` [width, k].

        `num_late` experts were neither there nor read on demand: they were on their way.
        """
        counters = self.current
        if fast:
            counters.num_layers_fast += 1
        else:
            counters.num_layers_fallback += 1
        self._count(counters, num_union - num_late, num_hits, payload_bytes)
        counters.num_routed += num_late
        if self.recording:
            self._keep(self._phase, self._forward_index, layer, ids, (num_union, num_hits, num_late))

    def defer(self, layer: int, indices: mx.array) -> None:
        """Keep one resident layer's ids on the device until `settle`. Shapes: [1, width, experts per token]."""
        self._open.layers.append(layer)
        if indices.shape[1] == 1 and not self.recording:
            # Keeping the ids would keep the whole sorted row of scores alive that they are a view of.
            self._open.known.append(indices.shape[2])
        else:
            self._open.indices.append(indices)

    def forget_layers_from(self, layer: int) -> None:
        """Uncount what this and later layers deferred in the forward that is open: they will run again."""
        kept = sum(done < layer for done in self._open.layers)
        for entries in (self._open.layers, self._open.indices, self._open.known):
            del entries[kept:]

    def forget_last_forward(self) -> None:
        """Uncount a forward that was submitted ahead and whose result nobody used. It must have been deferred whole."""
        item = self._deferred.pop()
        self.counters[item.phase].num_forwards -= 1
        self._forward_index -= 1

    def take(self) -> tuple[dict[Phase, PhaseCounters], tuple[Routing, ...]]:
        """Hand over what was counted and recorded, and start anew: nothing that runs later is added to it."""
        self.settle()
        taken = self.counters, tuple(self.routings)
        self.reset()
        return taken

    def settle(self) -> None:
        """Read and count what was deferred. Call it outside timed regions."""
        for item in self._deferred:
            counters = self.counters[item.phase]
            if not item.indices:
                counters.num_layers_fast += len(item.layers)
                self._count(counters, sum(item.known), sum(item.known), 0)
                continue
            for layer, indices in zip(item.layers, item.indices, strict=True):
                ids = np.array(indices).astype(np.int64).reshape(-1, indices.shape[-1])
                num_union = len(np.unique(ids))
                counters.num_layers_fast += 1
                self._count(counters, num_union, num_union, 0)
                if self.recording:
                    self._keep(item.phase, item.forward_index, layer, ids, (num_union, num_union, 0))
        self._deferred = []

    def _keep(
        self, phase: Phase, forward_index: int, layer: int, ids: NDArray[np.int64], counts: tuple[int, int, int]
    ) -> None:
        num_union, num_hits, num_late = counts
        self.routings.append(
            Routing(
                phase=phase,
                forward_index=forward_index,
                layer=layer,
                experts=ids,
                num_union=num_union,
                num_hits=num_hits,
                num_late=num_late,
            )
        )

    @staticmethod
    def _count(counters: PhaseCounters, num_union: int, num_hits: int, payload_bytes: int) -> None:
        counters.num_routed += num_union
        counters.num_hits += num_hits
        counters.num_disk_loads += num_union - num_hits
        counters.disk_bytes += (num_union - num_hits) * payload_bytes
