"""Which experts leave when others must come: pure policies over frozen states.

A policy never sees slots, files or MLX: it is told which experts were used, in order, and asked to choose victims among
candidates. So every policy can be replayed over a stored routing trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.contract.errors import TaskError

Experts = NDArray[np.int64]


class EvictionPolicy(Protocol):
    """A policy for one layer. `State` is opaque to the pool, immutable, and handed back at each call."""

    name: str

    def start(self, num_experts: int) -> Any:
        """The state before any use."""
        ...

    def access(self, state: Any, experts: Experts) -> Any:
        """The state after one forward used these distinct experts."""
        ...

    def victims(self, state: Any, candidates: Experts, count: int) -> Experts:
        """The `count` candidates to evict. Candidates are resident, not pinned and not needed by the current forward."""
        ...


@dataclass(frozen=True, slots=True)
class LruState:
    """`last_use[expert]` is the clock at its last use; 0 means never."""

    clock: int
    last_use: NDArray[np.int64]


class Lru:
    """Evict what was used longest ago; among experts last used by the same forward, the lowest id first."""

    name = "lru"

    def start(self, num_experts: int) -> LruState:
        return LruState(clock=0, last_use=np.zeros(num_experts, dtype=np.int64))

    def access(self, state: LruState, experts: Experts) -> LruState:
        last_use = state.last_use.copy()
        last_use[experts] = state.clock + 1
        return LruState(clock=state.clock + 1, last_use=last_use)

    def victims(self, state: LruState, candidates: Experts, count: int) -> Experts:
        ordered = np.sort(candidates)
        return ordered[np.argsort(state.last_use[ordered], kind="stable")[:count]]


_POLICIES: dict[str, type[EvictionPolicy]] = {"lru": Lru}


def policy(name: str) -> EvictionPolicy:
    """Raises: TaskError for an unknown name."""
    try:
        return _POLICIES[name]()
    except KeyError as error:
        raise TaskError(f"eviction is {name!r}, expected one of {', '.join(_POLICIES)}") from error
