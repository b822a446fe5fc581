"""LRU: evict what was used longest ago."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.experts.eviction.policy import Experts


@dataclass(frozen=True, slots=True)
class LruState:
    """`last_use[expert]` is the clock at its last use; 0 means never."""

    clock: int
    last_use: NDArray[np.int64]


class Lru:
    """Evict what was used longest ago; among experts last used by the same forward, the lowest id first."""

    name = "lru"

    def start(self, num_experts: int, num_slots: int) -> LruState:  # noqa: ARG002 - recency needs no capacity
        return LruState(clock=0, last_use=np.zeros(num_experts, dtype=np.int64))

    def admit(self, state: LruState, experts: Experts) -> LruState:
        """What is admitted ahead of its use counts as used by the last forward: it must not be the next to leave."""
        last_use = state.last_use.copy()
        last_use[experts] = state.clock
        return LruState(state.clock, last_use)

    def access(self, state: LruState, experts: Experts) -> LruState:
        last_use = state.last_use.copy()
        last_use[experts] = state.clock + 1
        return LruState(state.clock + 1, last_use)

    def evict(self, state: LruState, candidates: Experts, count: int) -> tuple[LruState, Experts]:
        return state, candidates[np.argsort(state.last_use[candidates], kind="stable")[:count]]
