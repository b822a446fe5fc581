"""Who runs what next: one task per node, variants interleaved, nothing that does not fit, nobody held up by a failing task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.nodes.node import Node, NodeName
from fleet.schedule.plan import Waiting, interleaved, plan
from worker.contract.task import CheckpointRef, Prompt, Task

A, B = Node(name=NodeName("a")), Node(name=NodeName("b"))


def task(width: int) -> Task:
    return Task(
        checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="p", category="c", text="t"),), verify_width=width
    )


def waiting(*widths: int) -> list[Waiting]:
    return [Waiting(task=task(width), position=position) for position, width in enumerate(widths)]


def everything_fits(_task: Task, _node: Node) -> bool:
    return True


def test_each_free_node_gets_one_task_in_order():
    found = plan(waiting(1, 2, 3), [A, B], {}, fit=everything_fits, now_s=0)
    assert [(entry.task.verify_width, entry.node, entry.number) for entry in found] == [(1, "a", 1), (2, "b", 1)]


def test_a_busy_node_gets_nothing():
    found = plan(waiting(1, 2), [A, B], {A.name: task(5).id}, fit=everything_fits, now_s=0)
    assert [(entry.task.verify_width, entry.node) for entry in found] == [(1, "b")]


def test_a_task_waits_for_a_node_that_it_fits():
    only_b_is_large = lambda task, node: task.verify_width < 4 or node is B  # noqa: E731
    assert plan(waiting(5), [A], {}, fit=only_b_is_large, now_s=0) == []
    found = plan(waiting(5, 1), [A, B], {}, fit=only_b_is_large, now_s=0)
    assert [(entry.task.verify_width, entry.node) for entry in found] == [(1, "a"), (5, "b")]


def test_a_pause_is_kept_and_the_next_attempt_counts_on():
    entry = Waiting(task=task(1), position=0, attempts=2, not_before_s=10.0)
    assert plan([entry], [A], {}, fit=everything_fits, now_s=9.9) == []
    (found,) = plan([entry], [A], {}, fit=everything_fits, now_s=10.0)
    assert found.number == 3


def test_a_task_that_failed_before_comes_after_those_that_were_never_tried():
    tried = Waiting(task=task(1), position=0, attempts=1)
    fresh = Waiting(task=task(2), position=1)
    (found,) = plan([tried, fresh], [A], {}, fit=everything_fits, now_s=0)
    assert found.task.verify_width == 2


@pytest.mark.parametrize(
    ("count", "order"),
    [(1, [0]), (2, [0, 1]), (4, [0, 2, 1, 3]), (6, [0, 4, 2, 1, 5, 3]), (8, [0, 4, 2, 6, 1, 5, 3, 7])],
)
def test_the_order_by_hand(count, order):
    assert interleaved(count) == order


@given(st.integers(min_value=1, max_value=300))
def test_every_task_has_exactly_one_place(count):
    assert sorted(interleaved(count)) == list(range(count))


def test_the_demos_two_widths_are_mixed_instead_of_running_one_after_the_other():
    widths = [2, 2, 2, 3, 3, 3]
    assert [widths[index] for index in interleaved(6)] == [2, 3, 2, 2, 3, 3]
