"""How the layers of the current forward learn which slots to use: from the host, or from the device's slot map.

On the host's way a layer's routed ids are read, what is missing is loaded, and the layer runs on slots that are right. On
the device's way (`optimistic`) a layer runs on whatever the slot map says and only leaves its ids behind; whoever switched
it on must read them and run again what met an absent expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.experts.pool import LayerPool

_ADAPT = 0.1
"""Weight of the newest forward in the running estimates."""


@dataclass(slots=True)
class MissEstimates:
    """How often each layer met an absent expert lately, by forward width.

    Starts pessimistic, so that streaming layers are read one by one; a layer that holds all its experts never misses.
    """

    start: NDArray[np.float64]
    width: int = 1
    """Width of the forward that runs now."""
    by_width: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def of(self, width: int) -> NDArray[np.float64]:
        return self.by_width.setdefault(width, self.start.copy())

    def admitted(self, layer: int, num_experts: int, num_hits: int) -> None:
        """A layer of the current forward used these distinct experts, of which so many were resident."""
        estimates = self.of(self.width)
        estimates[layer] += _ADAPT * (float(num_hits < num_experts) - estimates[layer])


@dataclass(slots=True)
class RoutingMode:
    """Shared by all streaming layers of one model."""

    misses: MissEstimates
    optimistic: bool = False
    overlap: bool = False
    """Whether the device works while the host waits: it computes the shared expert, and the routed ones on the slot map where
    a miss is unlikely. Pays where the device is not the host's own processor."""
    left_behind: list[tuple[LayerPool, mx.array]] = field(default_factory=list)

    def expects_hits(self, layer: int) -> bool:
        """Whether the layer will more probably than not find everything resident in this forward."""
        return bool(self.misses.of(self.misses.width)[layer] < 0.5)

    def take(self) -> list[tuple[LayerPool, mx.array]]:
        """What optimistic layers routed to since the last call, in layer order. Shapes of each: [1, width, k]."""
        taken, self.left_behind = self.left_behind, []
        return taken
