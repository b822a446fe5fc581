"""Admission: which job may run where. Asked once when a study is submitted, and followed while the machines change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fleet.cluster.book import Book
from fleet.errors import UsageError
from fleet.ledger.machines import MachineState
from fleet.nodes.answer import Fit, Unfit
from fleet.nodes.constraints import Constraint, parse_constraint
from fleet.nodes.fit import fits
from fleet.nodes.job import job_parts
from fleet.nodes.node import Node, NodeName
from fleet.nodes.shape import ModelShape, read_shape
from fleet.study.study import Study, StudyId
from worker.contract.task import CheckpointRef, Task, TaskId

Targets = Mapping[TaskId, Sequence[NodeName | None]]
"""The machines that are to run each task; None: whichever is free and fits."""


def judge(
    tasks: Mapping[TaskId, Task],
    require: Sequence[Constraint],
    nodes: Collection[Node],
    machines: Mapping[NodeName, MachineState],
) -> dict[TaskId, dict[NodeName, Fit | Unfit]]:
    """Whether each task fits each machine, by the study's conditions and what is known of the machines now."""
    shapes = {checkpoint: _known_shape(checkpoint) for checkpoint in {task.checkpoint for task in tasks.values()}}
    facts = {node.name: machines[node.name].facts if node.name in machines else None for node in nodes}
    return {
        task_id: {
            node.name: fits(task, node, shapes[task.checkpoint], facts=facts[node.name], require=require)
            for node in nodes
        }
        for task_id, task in tasks.items()
    }


def _known_shape(checkpoint: CheckpointRef) -> ModelShape | None:
    """The shape of a checkpoint, if this machine has it; the machines of a fleet may have it where this one does not."""
    try:
        return read_shape(checkpoint)
    except UsageError:
        return None


def targets_of(study: Study, nodes: Sequence[Node], machines: Mapping[NodeName, MachineState]) -> Targets:
    """Who is to run what. Raises: UsageError with the reasons when a task fits no machine, which would wait for ever."""
    tasks = {task.id: task for task in study.tasks}
    targets: dict[TaskId, Sequence[NodeName | None]] = {}
    for task_id, answers in judge(tasks, conditions(study), nodes, machines).items():
        fitting = _fitting(answers)
        if not fitting:
            reasons = "; ".join(dict.fromkeys(a.reason for a in answers.values() if isinstance(a, Unfit)))
            raise UsageError(
                f"a task of this study fits no machine: {reasons or 'there is none'}",
                "correct the study's matrix or what it requires, or add a machine",
            )
        targets[task_id] = fitting if study.machines == "each" else (None,)
    return targets


def conditions(study: Study) -> list[Constraint]:
    """What a study requires of machines. Raises: UsageError for a text that is no condition."""
    return [parse_constraint(text, where=str(study.path)) for text in study.require]


def _fitting(answers: Mapping[NodeName, Fit | Unfit]) -> list[NodeName]:
    return [name for name, answer in answers.items() if isinstance(answer, Fit)]


class Admission:
    """Keeps, for the jobs that any machine may run, the groups of tasks that fit the same machines."""

    def __init__(self) -> None:
        self._members: dict[str, frozenset[NodeName]] = {}
        self._known: dict[StudyId, object] = {}

    def fits(self, group: str, node: NodeName) -> bool:
        return node in self._members.get(group, frozenset())

    def follow(self, book: Book, nodes: Collection[Node]) -> None:
        """Group the tasks of every study that is new, and of all when something of the machines changed.

        Mutates: the book.
        """
        now = tuple((node, book.machines[node.name].facts) for node in nodes)
        for study_id, state in book.studies.items():
            if self._known.get(study_id) == now:
                continue
            self._known[study_id] = now
            if any(job_parts(job)[1] is None for job in state.jobs):
                book.set_groups(study_id, self._groups(study_id, book, nodes))

    def _groups(self, study_id: StudyId, book: Book, nodes: Collection[Node]) -> dict[TaskId, str]:
        require = [parse_constraint(text) for text in book.asked(study_id).get("require", [])]
        groups = {}
        for task_id, answers in judge(book.tasks(study_id), require, nodes, book.machines).items():
            members = frozenset(_fitting(answers))
            group = f"{study_id}/{hash(members):x}"
            self._members[group] = members
            groups[task_id] = group
        return groups
