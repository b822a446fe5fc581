"""The best that any eviction could have done on a trace: how far a policy is from what was possible.

An expert that is used in forward i and next in forward j hits in j if it stays in between: it then holds a slot during
every forward from i+1 to j-1, beside the experts which that forward itself needs. Whenever more want to stay than there
are slots left, someone must go, and letting go whoever is needed furthest in the future is best (Belady 1966): all of
them are worth one hit, and what the others still ask for is part of what the last one asks for.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Experts = NDArray[np.int64]


def optimal_hits(
    trace: Sequence[Experts], *, num_experts: int, num_slots: int, resident: Experts | None = None
) -> NDArray[np.int64]:
    """Hits of each forward under an optimal eviction of one layer that loads on demand only; their sum is the maximum.

    Each forward needs its distinct experts resident together. `resident` is what the pool holds before the first one
    (None: nothing). Several evictions may be optimal: the sum is unique, its spread over the forwards is not.
    Raises: ValueError when a forward needs more experts than there are slots, or more are resident.
    """
    first = resident if resident is not None else np.empty(0, dtype=np.int64)
    arrays = [first, *trace]
    for index, experts in enumerate(arrays):
        if experts.size > num_slots:
            what = f"forward {index - 1} needs" if index else "the pool begins with"
            raise ValueError(f"{what} {experts.size} experts, the pool has {num_slots} slots")
    needed, following_uses = _as_lists(arrays)
    hits = np.zeros(len(needed), dtype=np.int64)
    stays = [False] * num_experts
    num_staying = 0
    # The furthest next use first: minus (forward x experts + expert). What has been used since sorts last, because its
    # next use lay in the past, and is never reached while anyone stays.
    furthest: list[int] = []
    for index, (experts, following) in enumerate(zip(needed, following_uses, strict=True)):
        hit = 0
        for expert in experts:
            if stays[expert]:
                stays[expert] = False
                hit += 1
        hits[index] = hit
        num_staying -= hit
        while num_staying > num_slots - len(experts):
            stays[-heapq.heappop(furthest) % num_experts] = False
            num_staying -= 1
        for expert, at in zip(experts, following, strict=True):
            if at:
                stays[expert] = True
                num_staying += 1
                heapq.heappush(furthest, -(at * num_experts + expert))
    return hits[1:]


def _as_lists(needed: Sequence[Experts]) -> tuple[list[list[int]], list[list[int]]]:
    """The experts of each forward, and for each of them the forward that uses it next, or 0 when none does."""
    sizes = np.array([experts.size for experts in needed])
    flat = np.concatenate(needed)
    forward = np.repeat(np.arange(len(needed)), sizes)
    order = np.argsort(flat * len(needed) + forward)
    following = np.zeros(flat.size, dtype=np.int64)
    same = flat[order][1:] == flat[order][:-1]
    following[order[:-1][same]] = forward[order[1:][same]]
    ends = np.cumsum(sizes).tolist()
    spans = [(end - size, end) for end, size in zip(ends, sizes.tolist(), strict=True)]
    experts, uses = flat.tolist(), following.tolist()
    return [experts[start:end] for start, end in spans], [uses[start:end] for start, end in spans]
