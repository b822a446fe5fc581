"""A curve says what LRU does at every size, and the allocation equals an exhaustive one wherever it promises to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.experts.allocate import allocate, hit_curve
from worker.experts.eviction import policy

from .traces import Replay


def lru_hits(trace, num_experts: int, num_slots: int) -> int:
    replay = Replay(policy("lru"), num_experts, num_slots)
    return sum(replay.serve(experts) for experts in trace)


@settings(max_examples=100, deadline=None)
@given(trace=st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=3), max_size=40))
def test_a_curve_is_what_lru_does_at_every_size(trace):
    curve = hit_curve([np.array(sorted(needed)) for needed in trace], 10)
    assert curve.shape == (11,)
    for num_slots in range(3, 11):
        assert curve[num_slots] == lru_hits(trace, 10, num_slots)


def test_a_curve_of_the_bundled_model_is_what_lru_does(recorded_traces):
    for trace in recorded_traces[::5]:
        curve = hit_curve(trace, 64)
        assert [curve[s] for s in (12, 20, 40, 64)] == [lru_hits(trace, 64, s) for s in (12, 20, 40, 64)]


def best(curves, budget: int, floor: int, num_experts: int) -> int:
    """The most hits of any split, by trying all."""
    sizes = itertools.product(range(floor, num_experts + 1), repeat=len(curves))
    return max(
        sum(int(curve[count]) for curve, count in zip(curves, split, strict=True))
        for split in sizes
        if sum(split) <= budget
    )


def total(curves, split) -> int:
    return sum(int(curve[count]) for curve, count in zip(curves, split, strict=True))


GAINS = st.lists(st.lists(st.integers(0, 9), min_size=6, max_size=6), min_size=1, max_size=3)


@settings(max_examples=150, deadline=None)
@given(gains=GAINS, floor=st.integers(0, 3), extra=st.integers(0, 15))
def test_concave_curves_are_split_as_well_as_possible(gains, floor, extra):
    curves = [np.cumsum([0, *sorted(layer, reverse=True)]) for layer in gains]
    budget = floor * len(curves) + extra
    split = allocate(curves, budget_slots=budget, floor=floor, num_layers=len(curves), num_experts=6)
    assert total(curves, split) == best(curves, budget, floor, 6)


@settings(max_examples=150, deadline=None)
@given(gains=GAINS, floor=st.integers(0, 3), extra=st.integers(0, 15))
def test_any_curves_are_split_within_one_piece_of_the_best(gains, floor, extra):
    curves = [np.cumsum([0, *layer]) for layer in gains]
    budget = floor * len(curves) + extra
    split = allocate(curves, budget_slots=budget, floor=floor, num_layers=len(curves), num_experts=6)
    assert sum(split) == min(budget, 6 * len(curves))
    assert all(floor <= count <= 6 for count in split)
    assert total(curves, split) > best(curves, budget, floor, 6) - max(9 * (6 - floor), 1)


def test_by_hand():
    steep, flat, late = np.array([0, 8, 12, 12, 12]), np.array([0, 3, 6, 9, 12]), np.array([0, 0, 0, 10, 10])
    split = {
        budget: allocate([steep, flat, late], budget_slots=budget, floor=0, num_layers=3, num_experts=4)
        for budget in (1, 2, 5, 9, 12)
    }
    # Gains per slot: 8, 4 / 3, 3, 3, 3 / a piece of three slots worth 10/3 each.
    assert split == {1: (1, 0, 0), 2: (2, 0, 0), 5: (2, 0, 3), 9: (2, 4, 3), 12: (4, 4, 4)}


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(24, (8, 8, 8)), (25, (9, 8, 8)), (35, (12, 12, 11)), (60, (20, 20, 20)), (99, (20, 20, 20))],
)
def test_without_curves_all_layers_are_alike_to_one_slot(budget, expected):
    assert allocate(None, budget_slots=budget, floor=8, num_layers=3, num_experts=20) == expected


def test_what_no_curve_has_a_use_for_goes_to_the_layers_with_fewest():
    worth, nothing = np.array([0, 5, 10, 10, 10, 10, 10]), np.zeros(7, dtype=np.int64)
    assert allocate([worth, nothing], budget_slots=7, floor=1, num_layers=2, num_experts=6) == (4, 3)


def test_a_budget_below_the_floor_is_refused():
    with pytest.raises(ValueError, match="23 slots are fewer than the floor of 8 in each of 3 layers"):
        allocate(None, budget_slots=23, floor=8, num_layers=3, num_experts=20)
