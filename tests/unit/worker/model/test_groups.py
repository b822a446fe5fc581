"""The length of a group, by hand."""

from __future__ import annotations

import pytest

from worker.model.groups import MIN_GAIN, RETRY_FORWARDS, UNSEEN_GROUPS, GroupCosts, GroupTimes, group_end

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


def _experienced() -> GroupTimes:
    """Past the first groups, which compile kernels and teach nothing."""
    times = GroupTimes(0.5)
    for _ in range(UNSEEN_GROUPS):
        times.group_ran(4, 0, 1000.0)
    return times


def test_costs_are_those_seen_once_both_ways_were_seen():
    times = _experienced()
    assert (times.costs.read_s, times.costs.layer_s) == (0.5, 0.5)
    times.layer_ran_alone(1.0)
    times.group_ran(4, 4, 2.5)  # 2.0 without the read, 0.5 a layer
    assert (times.costs.read_s, times.costs.layer_s) == (0.5, 0.5)
    times.layer_ran_alone(2.0)  # 0.9 * 1.0 + 0.1 * 2.0
    assert times.costs.read_s == pytest.approx(1.1 - 0.5)


def test_groups_that_lose_are_given_up_and_tried_again():
    times = _experienced()
    times.layer_ran_alone(1.0)
    times.group_ran(4, 4, 3.0)  # four layers by themselves would have taken 4.0
    assert times.gain == pytest.approx(0.05 * 0.25)
    times.group_ran(4, 1, 3.0)  # one of four stood: 2.0 of 4.0 lost
    assert times.gain == pytest.approx(0.95 * 0.0125 - 0.05 * 0.5)
    assert times.allow()
    times.group_ran(4, 1, 3.0)
    times.group_ran(4, 1, 3.0)
    assert times.gain < MIN_GAIN
    refused = [times.allow() for _ in range(RETRY_FORWARDS + 1)]
    assert refused == [False] * RETRY_FORWARDS + [True]
    assert times.gain == 0


def test_one_disturbed_group_decides_nothing():
    times = _experienced()
    times.layer_ran_alone(1.0)
    times.group_ran(4, 4, 1000.0)
    assert times.gain == pytest.approx(0.05 * -0.5)
    assert times.allow()


def test_given_costs_are_not_unlearnt():
    times = GroupTimes(1.0, learns=False)
    times.layer_ran_alone(1.0)
    for _ in range(20):
        times.group_ran(4, 0, 100.0)
    assert times.allow()
    assert (times.costs.read_s, times.costs.layer_s) == (1.0, 1.0)
