"""How many hits an optimal eviction would have had on one repeat's own routing, from the pool that generation began with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worker.experts.counters import Routing
from worker.experts.eviction import Experts
from worker.experts.optimal import optimal_hits
from worker.experts.pool import LayerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStart:
    """One layer's pool as the first forward after the prompt met it."""

    layer: int
    num_experts: int
    num_slots: int
    resident: Experts


def pool_start(pool: LayerPool) -> PoolStart:
    return PoolStart(layer=pool.layer, num_experts=pool.num_experts, num_slots=pool.num_slots, resident=pool.resident)


def optimal_by_layer_and_width(
    routings: Sequence[Routing], starts: Sequence[PoolStart]
) -> dict[tuple[int, int], int] | None:
    """The optimal hits of all generation forwards per (layer, forward width), or None when no pool was seen to start.

    Pinned experts count as evictable: the bound is over everything that the slots could have held.
    """
    if not starts:
        return None
    by_layer: dict[int, list[Routing]] = defaultdict(list)
    for routing in routings:
        if routing.phase != "prefill":
            by_layer[routing.layer].append(routing)
    found: dict[tuple[int, int], int] = defaultdict(int)
    for start in starts:
        forwards = sorted(by_layer[start.layer], key=lambda routing: routing.forward_index)
        hits = optimal_hits(
            [np.unique(routing.experts) for routing in forwards],
            num_experts=start.num_experts,
            num_slots=start.num_slots,
            resident=start.resident,
        )
        for routing, count in zip(forwards, hits.tolist(), strict=True):
            found[start.layer, routing.forward_width] += count
    return dict(found)
