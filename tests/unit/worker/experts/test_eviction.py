"""LRU evicts what a textbook LRU evicts, on any trace."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.contract.errors import TaskError
from worker.experts.eviction import Lru, policy


def test_hand_computed_victims():
    lru = Lru()
    state = lru.start(6)
    for experts in ([0, 1], [2, 3], [0]):
        state = lru.access(state, np.array(experts))
    assert lru.victims(state, np.array([3, 2, 1, 0]), 3).tolist() == [1, 2, 3]
    assert lru.victims(state, np.array([5, 0, 3]), 2).tolist() == [5, 3]


def test_access_leaves_the_old_state_as_it_was():
    lru = Lru()
    old = lru.start(4)
    lru.access(old, np.array([1]))
    assert old.last_use.tolist() == [0, 0, 0, 0]


@given(st.lists(st.integers(0, 11), min_size=1, max_size=200), st.integers(1, 8))
def test_single_accesses_hit_as_often_as_a_textbook_lru(trace: list[int], capacity: int):
    lru, state, resident, hits = Lru(), Lru().start(12), set(), 0
    book: OrderedDict[int, None] = OrderedDict()
    book_hits = 0
    for expert in trace:
        hits += expert in resident
        if expert not in resident and len(resident) == capacity:
            resident -= set(lru.victims(state, np.array(sorted(resident)), 1).tolist())
        resident.add(expert)
        state = lru.access(state, np.array([expert]))
        book_hits += expert in book
        book[expert] = None
        book.move_to_end(expert)
        if len(book) > capacity:
            book.popitem(last=False)
        assert resident == set(book)
    assert hits == book_hits


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(TaskError, match="'belady', expected one of lru"):
        policy("belady")
