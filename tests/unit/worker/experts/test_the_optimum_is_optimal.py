"""The optimum equals an exhaustive search on tiny traces, and no policy beats it on any."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.experts.eviction import POLICIES, policy
from worker.experts.optimal import optimal_hits

from .traces import Replay


def exhaustive(trace: list[set[int]], num_slots: int, resident: set[int]) -> int:
    """Try every pool content after every forward."""
    best = {frozenset(resident): 0}
    for needed in trace:
        following: dict[frozenset[int], int] = {}
        for pool, hits in best.items():
            reached = hits + len(pool & needed)
            others = sorted(pool - needed)
            for kept in range(min(len(others), num_slots - len(needed)) + 1):
                for rest in itertools.combinations(others, kept):
                    after = frozenset(needed.union(rest))
                    following[after] = max(following.get(after, 0), reached)
        best = following
    return max(best.values())


def arrays(trace: list[set[int]]) -> list[np.ndarray]:
    return [np.array(sorted(needed), dtype=np.int64) for needed in trace]


@settings(max_examples=300, deadline=None)
@given(
    trace=st.lists(st.sets(st.integers(0, 6), min_size=0, max_size=3), max_size=9),
    num_slots=st.integers(3, 5),
    resident=st.sets(st.integers(0, 6), max_size=3),
)
def test_against_every_possible_eviction(trace, num_slots, resident):
    found = optimal_hits(
        arrays(trace), num_experts=7, num_slots=num_slots, resident=np.array(sorted(resident), dtype=np.int64)
    )
    assert found.size == len(trace)
    assert int(found.sum()) == exhaustive(trace, num_slots, resident)


def test_by_hand():
    trace = arrays([{0}, {1}, {2}, {0}, {1}, {2}])
    # Three slots keep all. Two keep 0 (or 1) for its next use and one more later on; LRU would never hit.
    assert optimal_hits(trace, num_experts=3, num_slots=3).tolist() == [0, 0, 0, 1, 1, 1]
    assert optimal_hits(trace, num_experts=3, num_slots=2).sum() == 2
    assert optimal_hits(trace, num_experts=3, num_slots=1).sum() == 0
    assert optimal_hits(trace, num_experts=3, num_slots=2, resident=np.array([1, 2])).sum() == 3
    assert optimal_hits([], num_experts=3, num_slots=2).tolist() == []


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=60, deadline=None)
@given(trace=st.lists(st.sets(st.integers(0, 14), min_size=1, max_size=4), max_size=60), num_slots=st.integers(4, 12))
def test_no_policy_beats_it(name, trace, num_slots):
    replay = Replay(policy(name), 15, num_slots)
    hits = sum(replay.serve(needed) for needed in trace)
    assert hits <= int(optimal_hits(arrays(trace), num_experts=15, num_slots=num_slots).sum())


def test_more_slots_never_hurt_and_all_slots_miss_each_expert_once(recorded_traces):
    for trace in recorded_traces:
        hits = [int(optimal_hits(trace, num_experts=64, num_slots=slots).sum()) for slots in (12, 16, 32, 64)]
        assert hits == sorted(hits)
        assert hits[-1] == sum(experts.size for experts in trace) - np.unique(np.concatenate(trace)).size


def test_a_forward_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="forward 1 needs 3 experts, the pool has 2 slots"):
        optimal_hits(arrays([{0}, {1, 2, 3}]), num_experts=4, num_slots=2)
    with pytest.raises(ValueError, match="the pool begins with 3 experts"):
        optimal_hits([], num_experts=4, num_slots=2, resident=np.arange(3))


def test_a_hundred_thousand_accesses_take_seconds_not_minutes():
    rng = np.random.default_rng(0)
    weights = np.exp(rng.standard_normal(512))
    trace = [np.sort(rng.choice(512, 10, replace=False, p=weights / weights.sum())) for _ in range(10_000)]
    start = time.perf_counter()
    hits = optimal_hits(trace, num_experts=512, num_slots=128)
    seconds = time.perf_counter() - start
    assert 0 < hits.sum() < 100_000
    assert seconds < 10
