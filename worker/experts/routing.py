"""How the layers of the current forward learn which slots to use: from the host, or from the device's slot map.

On the host's way a layer's routed ids are read, what is missing is loaded, and the layer runs on slots that are right. On
the device's way (`optimistic`) a layer runs on whatever the slot map says and only leaves its ids behind; whoever switched
it on must read them and run again what met an absent expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mlx.core as mx

from worker.experts.pool import LayerPool


@dataclass(slots=True)
class RoutingMode:
    """Shared by all streaming layers of one model."""

    optimistic: bool = False
    left_behind: list[tuple[LayerPool, mx.array]] = field(default_factory=list)

    def take(self) -> list[tuple[LayerPool, mx.array]]:
        """What optimistic layers routed to since the last call, in layer order. Shapes of each: [1, width, k]."""
        taken, self.left_behind = self.left_behind, []
        return taken
