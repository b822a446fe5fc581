"""Every policy keeps what its plain reference keeps, after every forward of any trace, and changes no state in place."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.worker.experts.eviction.references import REFERENCES
from tests.unit.worker.experts.traces import Replay
from worker.contract.errors import TaskError
from worker.experts.eviction import POLICIES, policy
from worker.experts.eviction.lfu import Lfu
from worker.experts.eviction.lfuda import Lfuda
from worker.experts.eviction.lru import Lru
from worker.experts.eviction.s3fifo import ABSENT, MAIN, NEVER, SMALL, S3Fifo

NAMES = sorted(POLICIES)


def sets(*, experts: int, largest: int, length: int) -> st.SearchStrategy[list[set[int]]]:
    # A skewed mix: few hot experts and many cold ones, so that hits, promotions and ghosts all occur.
    expert = st.one_of(st.integers(0, experts // 4), st.integers(0, experts - 1))
    return st.lists(st.sets(expert, min_size=1, max_size=largest), min_size=1, max_size=length)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200, deadline=None)
@given(
    trace=sets(experts=20, largest=4, length=150),
    num_slots=st.integers(6, 16),
    pins=st.sets(st.integers(0, 19), max_size=2),
    pin_at=st.integers(0, 100),
)
def test_on_random_traces_with_pins(name, trace, num_slots, pins, pin_at):
    replay, reference = Replay(policy(name), 20, num_slots), REFERENCES[name](num_slots)
    pinned: set[int] = set()
    for index, chosen in enumerate(trace):
        needed = chosen | pins if index == pin_at else chosen
        if index == pin_at:
            pinned = pins
        if len(needed | pinned) > num_slots:
            continue
        replay.serve(needed, pinned)
        reference.serve(needed, pinned)
        assert replay.resident == reference.resident


@pytest.mark.parametrize("num_slots", [12, 20, 40])
@pytest.mark.parametrize("name", NAMES)
def test_on_what_the_bundled_model_routes_to(name, num_slots, recorded_traces):
    replay_hits = reference_hits = 0
    for trace in recorded_traces:
        replay, reference = Replay(policy(name), 64, num_slots), REFERENCES[name](num_slots)
        for experts in trace:
            needed = set(experts.tolist())
            replay_hits += replay.serve(needed)
            reference_hits += len(needed & reference.resident)
            reference.serve(needed)
            assert replay.resident == reference.resident
    assert replay_hits == reference_hits > 0


@pytest.mark.parametrize("name", NAMES)
@given(trace=sets(experts=12, largest=3, length=40))
@settings(max_examples=50, deadline=None)
def test_no_call_changes_a_state_that_it_was_given(name, trace):
    replay = Replay(policy(name), 12, 6)
    for needed in trace:
        before, frozen = replay.state, pickle.dumps(replay.state)
        replay.serve(needed)
        assert pickle.dumps(before) == frozen


@given(st.lists(st.integers(0, 11), min_size=1, max_size=200), st.integers(1, 8))
def test_single_accesses_leave_what_a_textbook_lru_leaves(trace: list[int], capacity: int):
    replay = Replay(Lru(), 12, capacity)
    book: OrderedDict[int, None] = OrderedDict()
    for expert in trace:
        replay.serve({expert})
        book[expert] = None
        book.move_to_end(expert)
        if len(book) > capacity:
            book.popitem(last=False)
        assert replay.resident == set(book)


def test_lru_by_hand():
    lru, state = Lru(), Lru().start(6, 4)
    for experts in ([0, 1], [2, 3], [0]):
        state = lru.access(state, np.array(experts))
    assert lru.evict(state, np.array([0, 1, 2, 3]), 3)[1].tolist() == [1, 2, 3]
    assert lru.evict(state, np.array([0, 3, 5]), 2)[1].tolist() == [5, 3]
    state = lru.admit(state, np.array([5]))
    assert lru.evict(state, np.array([0, 3, 5]), 2)[1].tolist() == [3, 0]


def test_lfu_by_hand_a_use_counts_half_after_the_half_life():
    lfu = Lfu(half_life_forwards=2)
    state = lfu.start(4, 3)
    for experts in ([0], [0, 1], [1], [2], [2]):
        state = lfu.access(state, np.array(experts))
    # In units of the newest use: 0 has 2^-2 + 2^-1.5 = 0.60, 1 has 2^-1.5 + 2^-1 = 0.85, 2 has 2^-0.5 + 1 = 1.71.
    assert lfu.evict(state, np.array([0, 1, 2]), 3)[1].tolist() == [0, 1, 2]
    assert np.exp2(state.weight[:3] - 5 / 2) == pytest.approx([2**-2 + 2**-1.5, 2**-1.5 + 2**-1, 2**-0.5 + 1])


def test_lfuda_by_hand_the_age_is_the_key_that_left_last():
    lfuda = Lfuda()
    state = lfuda.start(5, 3)
    for experts in ([0], [0], [0], [1]):
        new = np.array(experts)
        state = lfuda.access(lfuda.admit(state, new) if experts == [1] or not state.uses[0] else state, new)
    state, victims = lfuda.evict(state, np.array([0, 1]), 1)
    assert (victims.tolist(), state.age) == ([1], 1)
    state = lfuda.access(lfuda.admit(state, np.array([2])), np.array([2]))
    assert state.key.tolist()[:3] == [3, 1, 2]
    state, victims = lfuda.evict(state, np.array([0, 2]), 2)
    assert (victims.tolist(), state.age) == ([2, 0], 3)


def test_s3_fifo_by_hand_probation_ghost_and_second_chance():
    replay = Replay(S3Fifo(), 30, 10)  # one small slot's share, nine ghosts
    for expert in (0, 0, 0, *range(1, 10)):
        replay.serve({expert})
    replay.serve({10})  # 0 was used twice more and moves to main; 1 was not and leaves
    assert replay.resident == {0, *range(2, 11)}
    replay.serve({1})  # a ghost returns to main at once, 2 leaves
    assert replay.resident == {0, 1, *range(3, 11)}
    for expert in range(11, 25):
        replay.serve({expert})
    assert {0, 1} <= replay.resident  # a scan passes through the small queue only


def _s3_fifo_with(num_slots: int, small: list[int], main: list[int], used_more: set[int]):
    """A state whose queues hold these experts, oldest first; `used_more` were used twice more."""
    s3_fifo = S3Fifo()
    state = s3_fifo.start(64, num_slots)
    state = replace(state, ghost=np.where(np.isin(np.arange(64), main), 0, state.ghost))
    for experts in (np.array(main, dtype=np.int64), np.array(small, dtype=np.int64)):
        state = s3_fifo.access(s3_fifo.admit(state, experts), experts)
    for _ in range(2):
        state = s3_fifo.access(state, np.array(sorted(used_more), dtype=np.int64))
    return s3_fifo, state


def test_s3_fifo_by_hand_a_small_queue_below_its_share_gives_what_the_main_queue_cannot():
    s3_fifo, state = _s3_fifo_with(40, small=[7, 8, 9], main=[1, 2], used_more={7})  # a share of four small slots
    after, victims = s3_fifo.evict(state, np.array([8]), 1)  # all but one are needed now
    assert victims.tolist() == [8]
    assert after.ghost[8] != NEVER
    assert s3_fifo.evict(state, np.array([1, 8, 9]), 2)[1].tolist() == [1, 8]
    # 7 earned its place and moves to main, 8 failed and leaves, then 7 as main's only one, then 9.
    after, victims = s3_fifo.evict(state, np.array([7, 8, 9]), 3)
    assert victims.tolist() == [8, 7, 9]
    assert (after.ghost[7:10] != NEVER).tolist() == [False, True, True]
    after, victims = s3_fifo.evict(state, np.array([7, 8, 9]), 1)
    assert (victims.tolist(), after.queue[7:10].tolist()) == ([8], [MAIN, ABSENT, SMALL])
    assert s3_fifo.evict(state, np.array([7]), 1)[1].tolist() == [7]


@pytest.mark.parametrize("num_may_leave", [1, 3, 8])
@pytest.mark.parametrize("name", NAMES)
def test_where_nearly_every_resident_expert_is_needed(name, num_may_leave):
    """One victim after the other, as the reference chooses them: in turns among many, and a few of the latest to come."""
    random, chosen = np.random.default_rng(5), policy(name)
    state, reference, latest = chosen.start(60, 40), REFERENCES[name](40), list[int]()
    for turn in range(300):
        again = random.choice(latest[-10:], 10) if latest else np.arange(0)
        newcomers = np.setdiff1d(np.arange(60), sorted(reference.resident))
        missing = np.sort(random.choice(newcomers, 40 - len(reference.resident), replace=False))
        needed = np.union1d(missing, again).astype(np.int64)
        state = chosen.access(chosen.admit(state, missing), needed)
        reference.serve(set(needed.tolist()))
        latest += missing.tolist()
        size = num_may_leave if turn % 2 else 30
        may_leave = set(random.choice(latest[-10:] if turn % 2 else latest, size, replace=False).tolist())
        count = int(random.integers(1, min(size, 8) + 1))
        state, victims = chosen.evict(state, np.array(sorted(may_leave)), count)
        assert victims.size == count
        for victim in victims.tolist():
            assert victim == reference.choose(sorted(may_leave))
            may_leave.remove(victim)
            latest.remove(victim)
            reference.resident.remove(victim)
            reference.left(victim)


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(TaskError, match="'belady', expected one of lru, lfu, lfuda, s3-fifo"):
        policy("belady")
