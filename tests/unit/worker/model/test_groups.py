"""The length of a group, by hand."""

from __future__ import annotations

import pytest

from worker.model.groups import GroupCosts, group_end

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
