"""Traces of distinct experts per forward, and a pool that is nothing but a policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.experts.eviction import EvictionPolicy

Trace = list[NDArray[np.int64]]


class Replay:
    """What a layer's pool does with a policy, without slots and files."""

    def __init__(self, policy: EvictionPolicy, num_experts: int, num_slots: int) -> None:
        self._policy, self._num_slots = policy, num_slots
        self.state: Any = policy.start(num_experts, num_slots)
        self._is_resident = np.zeros(num_experts, dtype=np.bool_)

    @property
    def resident(self) -> set[int]:
        return set(np.flatnonzero(self._is_resident).tolist())

    def serve(self, needed: Iterable[int], pinned: Iterable[int] = ()) -> int:
        """Make these experts resident together, use them, and return how many already were."""
        experts = np.array(sorted(needed), dtype=np.int64)
        missing = experts[~self._is_resident[experts]]
        count = int(self._is_resident.sum()) + missing.size - self._num_slots
        if missing.size:
            if count > 0:
                may_leave = self._is_resident.copy()
                may_leave[experts] = False
                may_leave[list(pinned)] = False
                self.state, victims = self._policy.evict(self.state, np.flatnonzero(may_leave), count)
                assert victims.size == np.unique(victims).size == count
                assert may_leave[victims].all()
                self._is_resident[victims] = False
            self._is_resident[missing] = True
            self.state = self._policy.admit(self.state, missing)
        self.state = self._policy.access(self.state, experts)
        return experts.size - missing.size
