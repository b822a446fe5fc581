"""What a policy is: four pure functions over a frozen state, for the pool of one layer.

forward needs experts -> evict (make room) -> admit (the missing ones are resident) -> access (all were used)
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Experts = NDArray[np.int64]


class EvictionPolicy(Protocol):
    """A policy for one layer. `State` is opaque to the pool, immutable, and handed back at each call.

    A policy never sees slots, files or MLX, so it can be replayed over a stored routing trace.
    """

    name: str

    def start(self, num_experts: int, num_slots: int) -> Any:
        """The state of an empty pool."""
        ...

    def admit(self, state: Any, experts: Experts) -> Any:
        """The state after these absent experts became resident, not used yet."""
        ...

    def access(self, state: Any, experts: Experts) -> Any:
        """The state after one forward used these distinct, resident experts."""
        ...

    def evict(self, state: Any, candidates: Experts, count: int) -> tuple[Any, Experts]:
        """Choose `count` candidates to evict, first to leave first, and return the state after they left.

        Candidates are resident, ascending, not pinned and not needed by the current forward; at least `count` of them.
        """
        ...
