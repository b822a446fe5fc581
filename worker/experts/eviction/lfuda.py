"""LFU with dynamic ageing: evict the smallest count plus the age that the pool had when the expert was last used.

Source: Arlitt, Cherkasova, Dilley, Friedrich and Jin, "Evaluating content management techniques for Web proxy caches"
(2000), LFU-DA: K = F + L, with F the uses since admission and L the key of what was evicted last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.experts.eviction.policy import Experts


@dataclass(frozen=True, slots=True)
class LfudaState:
    """`uses` since admission and `key` per resident expert, `last_use` to decide between equal keys, and the pool's age."""

    clock: int
    age: int
    uses: NDArray[np.int64]
    key: NDArray[np.int64]
    last_use: NDArray[np.int64]


class Lfuda:
    """Evict the smallest key; among equals what was used longest ago, then the lowest id."""

    name = "lfuda"

    def start(self, num_experts: int, num_slots: int) -> LfudaState:  # noqa: ARG002 - keys need no capacity
        zeros = np.zeros(num_experts, dtype=np.int64)
        return LfudaState(clock=0, age=0, uses=zeros, key=zeros, last_use=zeros)

    def admit(self, state: LfudaState, experts: Experts) -> LfudaState:
        uses, key, last_use = state.uses.copy(), state.key.copy(), state.last_use.copy()
        uses[experts] = 0
        key[experts] = state.age
        last_use[experts] = state.clock
        return LfudaState(state.clock, state.age, uses, key, last_use)

    def access(self, state: LfudaState, experts: Experts) -> LfudaState:
        clock = state.clock + 1
        uses, key, last_use = state.uses.copy(), state.key.copy(), state.last_use.copy()
        new = uses[experts] + 1
        uses[experts] = new
        key[experts] = new + state.age
        last_use[experts] = clock
        return LfudaState(clock, state.age, uses, key, last_use)

    def evict(self, state: LfudaState, candidates: Experts, count: int) -> tuple[LfudaState, Experts]:
        order = np.lexsort((state.last_use[candidates], state.key[candidates]))
        victims = candidates[order[:count]]
        # Evicted one after the other, the last and largest key would be the age.
        age = int(state.key[victims[-1]]) if victims.size else state.age
        return LfudaState(state.clock, age, state.uses, state.key, state.last_use), victims
