"""Does this task fit this node? A pure answer, given before anything runs, with the number in the reason."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.errors import UsageError
from fleet.nodes.answer import Fit, Unfit
from fleet.nodes.node import Node, NodeName
from fleet.nodes.shape import ModelShape
from worker.contract.task import Task, TaskId


def pool_floor(task: Task, shape: ModelShape) -> int:
    """The slots that one verify forward can need at once: each of its tokens may route to experts of its own."""
    return min(task.verify_width * shape.experts_per_token, shape.num_experts)


def fits(task: Task, node: Node, shape: ModelShape | None) -> Fit | Unfit:
    """Compare a task with a node and with the model's shape; a shape that nobody knows yet rules nothing out."""
    del node  # capacity of the machine joins here once the inventory carries measured facts
    if shape is None or task.slots_per_layer is None:
        return Fit()
    floor = pool_floor(task, shape)
    if task.slots_per_layer < floor:
        return Unfit(
            reason=f"slots_per_layer is {task.slots_per_layer}, below the floor of {floor} "
            f"(verify_width {task.verify_width} x {shape.experts_per_token} experts per token)"
        )
    if task.slots_per_layer > shape.num_experts:
        return Unfit(
            reason=f"slots_per_layer is {task.slots_per_layer}, but a layer of this model has only "
            f'{shape.num_experts} experts; "all" keeps every one'
        )
    return Fit()


def admit(
    tasks: Sequence[Task], nodes: Sequence[Node], shape: ModelShape | None
) -> dict[tuple[TaskId, NodeName], bool]:
    """Which task fits which node, once it is sure that every task fits at least one.

    Raises: UsageError with the reason of the first task that fits nowhere; a task like that would wait for ever.
    """
    answers = {(task.id, node.name): fits(task, node, shape) for task in tasks for node in nodes}
    for task in tasks:
        reasons = [answer.reason for node in nodes if isinstance(answer := answers[task.id, node.name], Unfit)]
        if nodes and len(reasons) == len(nodes):
            raise UsageError(f"a task of this study fits no machine: {reasons[0]}", "correct the study's matrix")
    return {key: isinstance(answer, Fit) for key, answer in answers.items()}
