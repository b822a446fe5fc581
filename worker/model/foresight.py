"""What the next layer will probably route to, asked of its own router ahead of time.

The residual stream changes little from one layer to the next, so the next layer's router, applied to this layer's MoE input,
names most of the experts that it will choose. The answer travels to the host together with this layer's routed ids.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.experts.pool import ABSENT, LayerPool


class NextRouter:
    """The router of the layer after the one that asks, and the pool it routes into."""

    def __init__(self, router: Callable[[mx.array], mx.array], pool: LayerPool, experts_per_token: int) -> None:
        self._router, self._pool, self._experts_per_token = router, pool, experts_per_token

    def wants(self) -> bool:
        """Whether to predict in this forward."""
        return self._pool.prefetcher is not None and self._pool.prefetcher.wants(self._pool.layer)

    def predict(self, x: mx.array) -> mx.array:
        """Shapes: the asking layer's MoE input [1, width, hidden] -> experts [1, width, k], most probable first."""
        prefetcher = self._pool.prefetcher
        assert prefetcher is not None
        start = prefetcher.clock()
        best = mx.argsort(-self._router(x), axis=-1)[..., : self._experts_per_token]
        prefetcher.counters.predict_s += prefetcher.clock() - start
        return best

    def submit(self, predicted: NDArray[np.int64]) -> None:
        """Have what is absent of it read ahead. Shapes: [width, k]."""
        pool = self._pool
        assert pool.prefetcher is not None
        pool.prefetcher.submit(pool.layer, pool.file, predicted, pool.slot_of == ABSENT)
