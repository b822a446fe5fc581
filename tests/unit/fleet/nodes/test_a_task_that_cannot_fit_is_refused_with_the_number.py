"""The pool floor, by hand: every token of a verify forward may route to experts of its own."""

from __future__ import annotations

import pytest

from fleet.errors import UsageError
from fleet.nodes.fit import Fit, Unfit, admit, fits, pool_floor
from fleet.nodes.node import Node, NodeName
from fleet.nodes.shape import ModelShape
from worker.contract.task import CheckpointRef, Prompt, Task

NODE = Node(name=NodeName("mac-1"))
SHAPE = ModelShape(num_experts=64, experts_per_token=4)


def task(width: int, slots: int | None) -> Task:
    prompts = (Prompt(id="a", category="c", text="t"),)
    return Task(checkpoint=CheckpointRef(source="demo"), prompts=prompts, verify_width=width, slots_per_layer=slots)


@pytest.mark.parametrize(("width", "slots"), [(3, 12), (3, 64), (1, 4), (5, 20), (3, None)])
def test_at_or_above_the_floor_it_fits(width, slots):
    assert fits(task(width, slots), NODE, SHAPE) == Fit()


def test_one_slot_below_the_floor_does_not_fit_and_the_reason_holds_the_numbers():
    answer = fits(task(3, 11), NODE, SHAPE)
    assert isinstance(answer, Unfit)
    assert "slots_per_layer is 11" in answer.reason
    assert "floor of 12" in answer.reason
    assert "verify_width 3 x 4 experts" in answer.reason


def test_more_slots_than_experts_do_not_fit():
    answer = fits(task(3, 65), NODE, SHAPE)
    assert isinstance(answer, Unfit)
    assert "only 64 experts" in answer.reason


def test_the_floor_never_exceeds_the_experts_that_exist():
    assert pool_floor(task(5, 8), ModelShape(num_experts=8, experts_per_token=2)) == 8


def test_a_shape_that_nobody_knows_rules_nothing_out():
    assert fits(task(3, 1), NODE, None) == Fit()


def test_a_study_with_one_impossible_task_is_refused_whole():
    with pytest.raises(UsageError, match="floor of 12") as caught:
        admit([task(3, 64), task(3, 8)], [NODE], SHAPE)
    assert caught.value.exit_code == 2
    assert admit([task(3, 64)], [NODE], SHAPE) == {(task(3, 64).id, "mac-1"): True}
