"""Does this task fit this node? A pure answer, given before anything runs, with the number in the reason."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.nodes.answer import Fit, Unfit
from fleet.nodes.constraints import Constraint, MachineFacts, meets_all
from fleet.nodes.node import Node
from fleet.nodes.shape import ModelShape
from worker.contract.task import Task


def pool_floor(task: Task, shape: ModelShape) -> int:
    """The slots that one verify forward can need at once: each of its tokens may route to experts of its own."""
    return min(task.verify_width * shape.experts_per_token, shape.num_experts)


def fits(
    task: Task,
    node: Node,
    shape: ModelShape | None,
    *,
    facts: MachineFacts | None = None,
    require: Sequence[Constraint] = (),
) -> Fit | Unfit:
    """Compare a task with a machine, what is required of it, and the model's shape.

    A shape or a size of memory that nobody knows yet rules nothing out; a required fact that nobody knows does.
    """
    met = meets_all(require, node, facts)
    if isinstance(met, Unfit):
        return met
    budget, memory_gb = task.memory_budget_bytes, facts.memory_gb if facts else None
    if budget is not None and memory_gb is not None and budget > memory_gb * 2**30:
        return Unfit(
            reason=f"memory_budget_bytes is {budget:,}, more than the {memory_gb:g} GiB of {node.name}; "
            "lower it, or require memory_gb"
        )
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
