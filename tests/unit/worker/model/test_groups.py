"""The length of a group, by hand."""

from __future__ import annotations

import pytest

from worker.model.groups import FORWARDS_PER_TRIAL, NUM_COMPARED, UNSEEN_FORWARDS, GroupCosts, GroupTimes, group_end

EVEN = GroupCosts(read_s=1.0, layer_s=1.0)


@pytest.mark.parametrize(
    ("start", "misses", "expected"),
    [
        (0, [0.0, 0.0, 0.0, 0.0], 4),
        (2, [0.0, 0.0, 0.0, 0.0], 4),
        (0, [1.0, 1.0, 1.0], 1),
        (0, [0.0, 1.0, 0.0], 1),  # nothing is won by running a layer twice to save one read of the same cost
        (0, [0.0, 0.0, 1.0, 0.0], 2),
        (0, [0.4, 0.1, 0.0], 3),  # 0.4 + (1 - 0.6 * 0.9) = 0.86 of a layer is wasted, one read is saved
        (0, [0.5, 0.1, 0.0], 1),  # 0.5 + (1 - 0.5 * 0.9) = 1.05
        (0, [0.0, 0.5, 0.5, 0.5, 0.5], 5),  # the chance of any miss stays below 1
        (3, [0.0, 0.0, 0.0, 0.5], 4),
    ],
)
def test_a_group_grows_while_it_saves_more_than_it_wastes(start: int, misses: list[float], expected: int):
    assert group_end(start, misses, EVEN) == expected


def test_the_cheaper_the_reads_the_shorter_the_groups():
    free = GroupCosts(read_s=0.0, layer_s=1.0)
    assert group_end(0, [0.01] * 4, free) == 1
    assert group_end(0, [0.01] * 4, GroupCosts(read_s=0.03, layer_s=1.0)) == 3


def test_the_limit_caps_the_length():
    assert group_end(1, [0.0] * 8, EVEN, limit=3) == 4
    assert group_end(0, [0.0] * 8, EVEN, limit=1) == 1


def test_costs_are_those_seen_once_both_ways_were_seen():
    times = GroupTimes(0.5)
    assert (times.costs.read_s, times.costs.layer_s) == (0.5, 0.5)
    times.layer_ran_alone(1.0)
    for _ in range(UNSEEN_FORWARDS):
        times.group_ran(4, 1000.0)  # they compile kernels
    times.group_ran(4, 1.7)  # 1.2 without the read, 0.3 a layer
    assert (times.costs.read_s, times.costs.layer_s) == pytest.approx((0.7, 0.3))
    times.layer_ran_alone(2.0)  # 0.9 * 1.0 + 0.1 * 2.0
    assert times.costs.read_s == pytest.approx(1.1 - 0.3)


def test_groups_that_looked_dear_once_are_still_made():
    times = GroupTimes(0.5)
    times.layer_ran_alone(1.0)
    for _ in range(UNSEEN_FORWARDS + 1):
        times.group_ran(4, 1000.0)
    assert group_end(0, [0.0] * 4, times.costs) == 4


def _run(times: GroupTimes, count: int, *, grouped_s: float, alone_s: float, width: int = 1) -> list[bool]:
    """Forwards that go the way they are allowed to, and take these seconds."""
    ways = []
    for _ in range(count):
        ways.append(times.allow(width))
        times.forward_ran(width, grouped_s if ways[-1] else alone_s, grouped=ways[-1])
    return ways


LEARNING = 2 * (NUM_COMPARED + UNSEEN_FORWARDS)


@pytest.mark.parametrize(("grouped_s", "faster"), [(0.9, True), (1.1, False)])
def test_the_faster_way_is_taken_and_the_other_tried_now_and_then(grouped_s: float, faster: bool):
    times = GroupTimes(0.5)
    both = _run(times, LEARNING, grouped_s=grouped_s, alone_s=1.0)
    assert both.count(True) == both.count(False)
    later = _run(times, 10 * FORWARDS_PER_TRIAL, grouped_s=grouped_s, alone_s=1.0)
    assert later.count(not faster) == 10


def test_a_way_that_became_faster_is_taken():
    times = GroupTimes(0.5)
    _run(times, LEARNING, grouped_s=2.0, alone_s=1.0)
    _run(times, NUM_COMPARED * FORWARDS_PER_TRIAL, grouped_s=0.5, alone_s=1.0)
    assert _run(times, FORWARDS_PER_TRIAL - 1, grouped_s=0.5, alone_s=1.0).count(True) >= FORWARDS_PER_TRIAL - 2


def test_disturbed_forwards_decide_nothing():
    times = GroupTimes(0.5)
    _run(times, 2 * UNSEEN_FORWARDS, grouped_s=1000.0, alone_s=1.0)  # they compile kernels
    _run(times, 2 * (NUM_COMPARED // 2), grouped_s=1000.0, alone_s=1.0)
    _run(times, 2 * (NUM_COMPARED - NUM_COMPARED // 2), grouped_s=0.5, alone_s=1.0)
    assert _run(times, 8, grouped_s=0.5, alone_s=1.0).count(True) == 8


def test_each_width_is_judged_by_itself():
    times = GroupTimes(0.5)
    _run(times, LEARNING, grouped_s=2.0, alone_s=1.0)
    assert times.allow(3)
    assert not times.allow(1)


def test_given_costs_are_not_unlearnt():
    times = GroupTimes(1.0, learns=False)
    times.layer_ran_alone(1.0)
    times.group_ran(4, 100.0)
    assert all(_run(times, 3 * LEARNING, grouped_s=100.0, alone_s=1.0))
    assert (times.costs.read_s, times.costs.layer_s) == (1.0, 1.0)
