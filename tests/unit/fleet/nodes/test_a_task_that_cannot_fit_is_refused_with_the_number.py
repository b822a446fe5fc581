"""The pool floor, by hand: every token of a verify forward may route to experts of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.nodes.constraints import MachineFacts, parse_constraint
from fleet.nodes.fit import Fit, Unfit, fits, pool_floor
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


def test_a_budget_above_the_machines_memory_does_not_fit_and_an_unknown_memory_rules_nothing_out():
    large = replace(task(3, None), memory_budget_bytes=65 * 2**30)
    answer = fits(large, NODE, SHAPE, facts=MachineFacts(memory_gb=64.0))
    assert isinstance(answer, Unfit)
    assert "more than the 64 GiB of mac-1" in answer.reason
    assert fits(large, NODE, SHAPE, facts=MachineFacts(memory_gb=65.0)) == Fit()
    assert fits(large, NODE, SHAPE, facts=MachineFacts()) == fits(large, NODE, SHAPE) == Fit()


def test_a_required_fact_that_nobody_knows_rules_the_machine_out():
    require = [parse_constraint("memory_gb >= 64")]
    assert fits(task(3, None), NODE, SHAPE, facts=MachineFacts(memory_gb=64.0), require=require) == Fit()
    for facts in (None, MachineFacts(), MachineFacts(memory_gb=32.0)):
        assert isinstance(fits(task(3, None), NODE, SHAPE, facts=facts, require=require), Unfit)
