"""The optimum of a repeat is made of its own generation forwards, per layer, from the pool that they began with."""

from __future__ import annotations

import numpy as np

from worker.benchmark.optimum import PoolStart, optimal_by_layer_and_width
from worker.experts.counters import Phase, Routing


def _routing(phase: Phase, forward_index: int, layer: int, *positions: list[int]) -> Routing:
    experts = np.array(positions)
    num_union = np.unique(experts).size
    return Routing(
        phase=phase, forward_index=forward_index, layer=layer, experts=experts, num_union=num_union, num_hits=0
    )


def test_by_hand():
    starts = [
        PoolStart(layer=0, num_experts=8, num_slots=3, resident=np.array([0, 1, 7])),
        PoolStart(layer=2, num_experts=8, num_slots=8, resident=np.arange(8)),
    ]
    routings = [
        _routing("prefill", 0, 0, [5, 6]),
        _routing("verify", 3, 0, [2, 3]),  # recorded out of order: a layer's forwards are sorted by their index
        _routing("verify", 1, 0, [0, 1], [1, 2]),
        _routing("decode", 2, 0, [0, 3]),
        _routing("decode", 4, 0, [1, 4]),
        _routing("verify", 1, 2, [0, 1], [1, 2]),
    ]
    # Layer 0: forward 1 hits 0 and 1 and loads 2; forward 2 hits 0, loads 3 and keeps 2; forward 3 hits 2 and 3.
    # Nobody had room to keep 1 for forward 4.
    assert optimal_by_layer_and_width(routings, starts) == {(0, 2): 2, (0, 1): 3, (2, 2): 3}


def test_a_pool_that_nobody_saw_has_no_optimum():
    assert optimal_by_layer_and_width([_routing("decode", 0, 0, [1, 2])], []) is None
