"""The plan: waiting tasks and free nodes in, assignments out. Pure, and asked again after every event.

Tasks run in an order in which a study's variants interleave, so that a machine that slowly grows hot or loaded does not
favour the variants that happen to be named first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleet.nodes.node import Node, NodeName
from worker.contract.task import Task, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A task to run. Units: `not_before_s` on the caller's clock; `attempts` counts the starts so far."""

    task: Task
    position: int
    attempts: int = 0
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Run this task on this node now, as its attempt number `number`."""

    task: Task
    node: NodeName
    number: int


def interleaved(count: int) -> list[int]:
    """The indices 0..count-1 in bit-reversed order: neighbours in time are far apart in the matrix."""
    bits = max(count - 1, 1).bit_length()
    return sorted(range(count), key=lambda index: int(f"{index:0{bits}b}"[::-1], 2))


def plan(
    waiting: Sequence[Waiting],
    nodes: Sequence[Node],
    running: Mapping[NodeName, TaskId],
    *,
    fit: Callable[[Task, Node], bool],
    now_s: float,
) -> list[Assignment]:
    """Give each free node at most one task that fits it.

    Tasks with fewer attempts come first, so one that keeps failing holds up nobody; then the order of `position`.
    """
    ready = sorted(
        (entry for entry in waiting if entry.not_before_s <= now_s), key=lambda entry: (entry.attempts, entry.position)
    )
    assignments: list[Assignment] = []
    for node in nodes:
        if node.name in running:
            continue
        entry = next((entry for entry in ready if fit(entry.task, node)), None)
        if entry is not None:
            ready.remove(entry)
            assignments.append(Assignment(task=entry.task, node=node.name, number=entry.attempts + 1))
    return assignments
