"""LFU with exponential decay: evict what was used least, where a use counts half after every half-life."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.experts.eviction.policy import Experts

HALF_LIFE_FORWARDS = 64.0
"""Forwards after which a use counts half.

Of 2, 4, ... 256 the best on the bundled model's greedy routing, at each of 12, 20, 32 and 48 slots of 64; for its forwards
of three tokens 32 is better by at most one hit in a hundred.
"""


@dataclass(frozen=True, slots=True)
class LfuState:
    """`weight[expert]` is the logarithm (base 2) of the sum over its uses of 2^(clock of the use / half-life).

    Growing the newest use instead of decaying all old ones orders experts alike and touches only those that were used;
    the logarithm keeps the sum from overflowing. Uses are remembered over an eviction.
    """

    clock: int
    weight: NDArray[np.float64]


class Lfu:
    """Evict the least decayed count of uses; among equals the lowest id first."""

    name = "lfu"

    def __init__(self, half_life_forwards: float = HALF_LIFE_FORWARDS) -> None:
        self.half_life_forwards = half_life_forwards

    def start(self, num_experts: int, num_slots: int) -> LfuState:  # noqa: ARG002 - counts need no capacity
        return LfuState(clock=0, weight=np.full(num_experts, -np.inf))

    def admit(self, state: LfuState, experts: Experts) -> LfuState:  # noqa: ARG002 - only uses count
        return state

    def access(self, state: LfuState, experts: Experts) -> LfuState:
        clock = state.clock + 1
        weight = state.weight.copy()
        weight[experts] = np.logaddexp2(weight[experts], clock / self.half_life_forwards)
        return LfuState(clock, weight)

    def evict(self, state: LfuState, candidates: Experts, count: int) -> tuple[LfuState, Experts]:
        return state, candidates[np.argsort(state.weight[candidates], kind="stable")[:count]]
