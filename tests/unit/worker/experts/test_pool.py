"""A slot always holds the expert the map says, a pinned one stays, and nothing is overwritten while it may be read."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.contract.errors import TaskError
from worker.experts.eviction import POLICIES
from worker.experts.pool import ABSENT, LayerPool
from worker.experts.slots import writes_are_visible

from .conftest import payload
from .eviction.references import REFERENCES


def _check_bytes(pool: LayerPool) -> None:
    pool.check_integrity()
    for slot, expert in enumerate(pool.expert_at):
        if expert != ABSENT:
            assert pool.slots.payload(slot) == payload(int(expert))


def test_the_cpu_backend_sees_writes_into_arrays():
    assert writes_are_visible()


@pytest.mark.parametrize("way", ["direct", "staged"])
def test_hits_and_loads_by_hand(make_pool: Callable[..., LayerPool], way: str):
    pool = make_pool(4, way=way)
    assert pool.admit(np.array([1, 2])) == (0, 0)
    assert pool.admit(np.array([2, 3])) == (1, 0)
    assert pool.admit(np.array([4, 5])) == (0, 0)
    assert set(pool.expert_at.tolist()) == {2, 3, 4, 5}
    assert pool.admit(np.array([2, 3, 4, 5])) == (4, 0)
    _check_bytes(pool)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_slots=st.integers(6, 20),
    way=st.sampled_from(["direct", "staged"]),
    eviction=st.sampled_from(sorted(POLICIES)),
    operations=st.lists(
        st.tuples(
            st.sampled_from(["admit", "admit", "admit", "pin", "unpin"]),
            st.sets(st.integers(0, 31), min_size=1, max_size=3),
        ),
        max_size=25,
    ),
)
def test_invariants_hold_after_random_operations(
    make_pool: Callable[..., LayerPool],
    num_slots: int,
    way: str,
    eviction: str,
    operations: list[tuple[str, set[int]]],
):
    pool = make_pool(num_slots, way=way, eviction=eviction)
    for name, chosen in operations:
        experts = np.array(sorted(chosen))
        if name == "unpin":
            pool.unpin()
        elif name == "admit" and pool.fits(experts):
            pinned = np.flatnonzero(pool.pinned)
            before = set(pool.expert_at.tolist()) & chosen
            assert pool.admit(experts) == (len(before), 0)
            assert (pool.slot_of[experts] != ABSENT).all()
            assert (pool.slot_of[pinned] != ABSENT).all()
        elif name == "pin" and int(pool.pinned.sum()) + len(chosen) + 3 <= num_slots:
            pool.pin(experts)
            assert pool.pinned[experts].all()
        _check_bytes(pool)


@pytest.mark.parametrize("eviction", sorted(POLICIES))
def test_a_pool_keeps_what_its_policy_s_reference_keeps(make_pool: Callable[..., LayerPool], eviction: str):
    """The pool tells its policy of every admission, use and eviction: one forgotten, and the two part."""
    rng = np.random.default_rng(7)
    weights = np.exp(rng.standard_normal(32))
    pool, reference = make_pool(10, eviction=eviction), REFERENCES[eviction](10)
    for _ in range(300):
        needed = rng.choice(32, 3, replace=False, p=weights / weights.sum())
        pool.admit(np.sort(needed))
        reference.serve(set(needed.tolist()))
        assert set(pool.resident.tolist()) == reference.resident


def test_pinning_everything_is_refused(make_pool: Callable[..., LayerPool]):
    pool = make_pool(4)
    with pytest.raises(TaskError, match="pinning 4 experts leaves no free slot of 4 in layer 0"):
        pool.pin(np.array([1, 2, 3, 4]))


def test_a_slot_that_an_unevaluated_graph_may_read_is_not_overwritten(make_pool: Callable[..., LayerPool]):
    pool = make_pool(2)
    pool.admit(np.array([3, 4]))
    slot = int(pool.slot_of[3])
    lazy = pool.slots.arrays["up_proj.weight"][mx.array([slot])] + 0
    pool.will_be_read_by(lazy)
    pool.admit(np.array([5, 6]))
    assert lazy[0, 0, 0].item() == 0x03030303


def test_a_slot_map_that_an_unevaluated_graph_may_read_is_not_overwritten(make_pool: Callable[..., LayerPool]):
    pool = make_pool(2)
    pool.admit(np.array([3, 4]))
    slots = pool.slot_of[[3, 4]].tolist()
    lazy = pool.device_map()[mx.array([3, 4])] + 0
    pool.will_be_read_by(lazy)
    pool.admit(np.array([3, 6]))
    pool.admit(np.array([7, 8]))
    assert lazy.tolist() == slots
    assert pool.device_map()[mx.array([7, 8])].tolist() == pool.slot_of[[7, 8]].tolist()


def test_the_slot_map_is_one_array_written_in_place(make_pool: Callable[..., LayerPool]):
    """The test above can fail: a graph that the pool was not told about reads the map that came later."""
    pool = make_pool(2)
    pool.admit(np.array([3, 4]))
    before = pool.device_map()
    lazy = before[mx.array([5, 6])] + 0
    pool.admit(np.array([5]))
    pool.admit(np.array([5, 6]))
    assert pool.device_map() is before
    assert lazy.tolist() == pool.slot_of[[5, 6]].tolist() != [0, 0]


def test_without_that_rule_the_graph_would_read_the_wrong_expert(make_pool: Callable[..., LayerPool]):
    """The test above can fail: an output the pool was not told about reads what came later."""
    pool = make_pool(2)
    pool.admit(np.array([3, 4]))
    slot = int(pool.slot_of[3])
    lazy = pool.slots.arrays["up_proj.weight"][mx.array([slot])] + 0
    pool.admit(np.array([5, 6]))
    assert lazy[0, 0, 0].item() != 0x03030303
