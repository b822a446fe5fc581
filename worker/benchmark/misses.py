"""How many experts each pool size would miss on given ids: one resident run tells it for all sizes at once.

Comparing engines at a hit ratio means choosing the slots that give it. The same ids in the same order route the same way in
every arm, so the routing of a run with everything resident, replayed under LRU, is what a pool of any size will see.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.benchmark.engine import Ids, engine_arm
from worker.experts.allocate import LruStack
from worker.experts.counters import Routing
from worker.model.target import Target

Misses = NDArray[np.float64]
"""Misses per token, over all layers. Shapes: [num_experts + 1], entry s is for s slots; entry 0 means nothing."""


def misses_by_slots(resident: Target, prompt: Ids, ids_of_round: Sequence[Ids], *, settled: bool = True) -> Misses:
    """Run what `interleave` runs, its unmeasured pass first, and count the misses of its measured rounds for every size.

    `resident` holds every expert. A prompt's chunk that does not fit into a pool is counted as if it did: it comes before
    what is measured and only decides what the first tokens find.
    """
    once = [_routings(resident, prompt, ids) for ids in ids_of_round]
    before = once if settled else once[:1]
    recorded = [*before, *once]
    num_experts = resident.pools[0].num_experts
    misses = np.zeros(num_experts + 1)
    for pool in resident.pools:
        stack = LruStack(num_experts)
        for index, routings in enumerate(recorded):
            for routing in routings:
                if routing.layer == pool.layer:
                    places = stack.use(np.unique(routing.experts))
                    if index >= len(before) and routing.phase == "decode":
                        misses += _misses_of(places, num_experts)
    return misses / sum(map(len, ids_of_round))


def slots_for(misses: Misses, num_routed_per_token: int, hit_ratio: float) -> int:
    """The fewest slots whose misses per token are no more than this hit ratio allows."""
    allowed = (1 - hit_ratio) * num_routed_per_token
    enough = np.flatnonzero(misses[1:] <= allowed + 1e-9) + 1
    return int(enough[0]) if enough.size else len(misses) - 1


def _misses_of(places: NDArray[np.int64], num_experts: int) -> NDArray[np.float64]:
    """How many of these uses miss, for every pool size. An expert at place p is there when there are p slots or more."""
    needed = np.where(places == 0, num_experts + 1, places)
    return places.size - np.cumsum(np.bincount(needed, minlength=num_experts + 2))[: num_experts + 1].astype(np.float64)


def _routings(target: Target, prompt: Ids, ids: Ids) -> tuple[Routing, ...]:
    target.telemetry.reset(recording=True)
    step = engine_arm("", target).start(prompt)
    for token in ids:
        mx.eval(step(mx.array([token])))
    return tuple(sorted(target.telemetry.take()[1], key=lambda routing: (routing.forward_index, routing.layer)))
