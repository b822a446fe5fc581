"""How many slots each layer gets out of a common number: by what another slot would be worth there.

    trace of a layer -> hit_curve: hits with 0, 1, 2, ... slots -> allocate: slots per layer

Layers differ: one routes to few experts over and over, another to all of them. The curve is LRU's, because one pass over a
trace gives it for every pool size at once. Curves of the other policies' own, by replay, were not reliably better for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Experts = NDArray[np.int64]
Curve = NDArray[np.int64]
"""Hits on one layer's trace. Shapes: [num_experts + 1], entry s is for s slots."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """A straight piece of a curve's hull. `gain` is its hits per slot."""

    gain: float
    start: int
    layer: int
    end: int


class LruStack:
    """The experts of one layer in the order of their last use (Mattson et al. 1970).

    An expert that was used finds itself at a place: it hits in every pool with so many slots or more. Experts last used by
    the same forward stand as `Lru` evicts them. The reference is `Lru` itself
    (tests/unit/worker/experts/test_slots_go_where_they_are_worth_most.py).
    """

    def __init__(self, num_experts: int) -> None:
        self._newest_first: Experts = np.empty(0, dtype=np.int64)
        self._num_experts = num_experts

    def use(self, experts: Experts) -> NDArray[np.int64]:
        """The place of each of these distinct experts, from 1; 0 if it was never used. Mutates: they are the newest now."""
        place = np.zeros(self._num_experts, dtype=np.int64)
        place[self._newest_first] = np.arange(1, self._newest_first.size + 1)
        found = place[experts]
        used = np.zeros(self._num_experts, dtype=np.bool_)
        used[experts] = True
        self._newest_first = np.concatenate([np.sort(experts)[::-1], self._newest_first[~used[self._newest_first]]])
        return found


def hit_curve(trace: Sequence[Experts], num_experts: int) -> Curve:
    """LRU's hits on a trace of distinct experts per forward, for every number of slots, from an empty pool.

    Exact for every size that each forward fits into.
    """
    stack = LruStack(num_experts)
    hits = np.zeros(num_experts + 1, dtype=np.int64)
    for experts in trace:
        hits += np.bincount(stack.use(experts), minlength=num_experts + 1)
    hits[0] = 0  # place 0: never used before, a miss with any number of slots
    return np.cumsum(hits)


def allocate(
    curves: Sequence[Curve] | None, *, budget_slots: int, floor: int, num_layers: int, num_experts: int
) -> tuple[int, ...]:
    """Slots per layer, at least `floor` and at most `num_experts` each, `budget_slots` together where layers can take them.

    Every layer begins at the floor. Then the steepest piece of any layer's concave hull is bought, piece by piece; the
    last one in part. That is the best split whenever it ends at a corner of each hull, and always when the curves are
    concave; otherwise it is short of the best by less than one piece. What no curve has a use for is spread evenly, as is
    everything without curves.
    Raises: ValueError when the budget is below the floor of all layers.
    """
    if budget_slots < floor * num_layers:
        raise ValueError(f"{budget_slots} slots are fewer than the floor of {floor} in each of {num_layers} layers")
    slots = [floor] * num_layers
    left = min(budget_slots, num_experts * num_layers) - floor * num_layers
    for segment in sorted(_segments(curves or (), floor), key=lambda s: (-s.gain, s.start, s.layer)):
        taken = min(segment.end - segment.start, left)
        slots[segment.layer] += taken
        left -= taken
    return _spread(slots, left, num_experts)


def _segments(curves: Sequence[Curve], floor: int) -> list[_Segment]:
    """The rising pieces of every layer's hull from the floor on. Within a layer they get flatter."""
    found = []
    for layer, curve in enumerate(curves):
        corners = _hull(curve, floor)
        for start, end in pairwise(corners):
            gain = float(curve[end] - curve[start]) / (end - start)
            if gain > 0:
                found.append(_Segment(gain, start, layer, end))
    return found


def _hull(curve: Curve, floor: int) -> list[int]:
    """The corners of the least concave curve above this one, from the floor on."""
    corners: list[int] = []
    for point in range(floor, len(curve)):
        while len(corners) > 1 and _is_below(curve, corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return corners


def _is_below(curve: Curve, left: int, middle: int, right: int) -> bool:
    """Whether the middle point lies on or below the line through the others. Whole numbers: no rounding."""
    return int(curve[middle] - curve[left]) * (right - left) <= int(curve[right] - curve[left]) * (middle - left)


def _spread(slots: list[int], left: int, num_experts: int) -> tuple[int, ...]:
    """Give `left` more slots to the layers, always to the one that has fewest. Mutates: `slots`."""
    while left > 0:
        fewest = min(slots)
        lowest = [layer for layer, count in enumerate(slots) if count == fewest]
        above = min([count for count in slots if count > fewest], default=num_experts)
        each = max(1, min(above - fewest, left // len(lowest)))
        for layer in lowest[:left]:
            slots[layer] += each
            left -= each
    return tuple(slots)
