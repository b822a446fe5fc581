"""Axes become one combination per task, in an order that does not depend on how the file is written."""

from __future__ import annotations

import pytest

from fleet.study.matrix import AXES, combinations


def test_the_product_is_complete_and_the_last_axis_is_fastest():
    found = combinations({"slots_per_layer": [64, 16], "verify_width": [2, 3]})
    assert found == [
        {"verify_width": 2, "slots_per_layer": 64},
        {"verify_width": 2, "slots_per_layer": 16},
        {"verify_width": 3, "slots_per_layer": 64},
        {"verify_width": 3, "slots_per_layer": 16},
    ]


def test_the_order_of_the_keys_changes_nothing():
    axes = {"eviction": ["lru"], "rollback": ["capture", "replay"], "verify_width": [1, 2]}
    assert combinations(axes) == combinations(dict(reversed(axes.items())))


def test_no_axis_is_one_task_with_the_defaults():
    assert combinations({}) == [{}]


def test_an_axis_that_does_not_exist_is_refused():
    with pytest.raises(KeyError, match="colour"):
        combinations({"colour": ["red"]})
    assert "verify_width" in AXES
