"""Admission: which job may run where. Asked once when a study is submitted, and followed while the machines change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from fleet.cluster.book import Book
from fleet.errors import UsageError
from fleet.ledger.machines import MachineState
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import StudyState
from fleet.nodes.answer import Fit, Unfit
from fleet.nodes.constraints import Constraint, MachineFacts, parse_constraint
from fleet.nodes.fit import fits
from fleet.nodes.node import Node, NodeName
from fleet.nodes.shape import ModelShape, read_shape
from fleet.study.study import Study, StudyId
from worker.contract.task import CheckpointRef, Task, TaskId

Judge = Callable[[StudyState, Task, Node], Fit | Unfit]
"""Whether a task of a study fits a machine, as far as is known now."""


def everything_fits(_study: StudyState, _task: Task, _node: Node) -> Fit | Unfit:
    return Fit()


def judge(ledger: Ledger) -> Judge:
    """The judge that goes by a study's conditions and by what the ledger knows of the machines."""
    machines = ledger.machines()

    def answer(study: StudyState, task: Task, node: Node) -> Fit | Unfit:
        require = [parse_constraint(text) for text in json.loads(study.study).get("require", [])]
        shape = known_shape(task.checkpoint)
        return fits(task, node, shape, facts=_facts(machines, node), require=require)

    return answer


def known_shape(checkpoint: CheckpointRef) -> ModelShape | None:
    """The shape of a checkpoint, if this machine has it; the machines of a fleet may have it where this one does not."""
    try:
        return read_shape(checkpoint)
    except UsageError:
        return None


Targets = Mapping[TaskId, Sequence[NodeName | None]]
"""The machines that are to run each task; None: whichever is free and fits."""


def targets_of(study: Study, nodes: Sequence[Node], machines: Mapping[NodeName, MachineState]) -> Targets:
    """Who is to run what. Raises: UsageError with the reasons when a task fits no machine, which would wait for ever."""
    require = conditions(study)
    shapes = {task.checkpoint: known_shape(task.checkpoint) for task in study.tasks}
    targets: dict[TaskId, Sequence[NodeName | None]] = {}
    for task in study.tasks:
        answers = {
            node.name: fits(task, node, shapes[task.checkpoint], facts=_facts(machines, node), require=require)
            for node in nodes
        }
        fitting = [name for name, answer in answers.items() if isinstance(answer, Fit)]
        if not fitting:
            reasons = "; ".join(dict.fromkeys(a.reason for a in answers.values() if isinstance(a, Unfit)))
            raise UsageError(
                f"a task of this study fits no machine: {reasons or 'there is none'}",
                "correct the study's matrix or what it requires, or add a machine",
            )
        targets[task.id] = fitting if study.machines == "each" else (None,)
    return targets


def conditions(study: Study) -> list[Constraint]:
    """What a study requires of machines. Raises: UsageError for a text that is no condition."""
    return [parse_constraint(text, where=str(study.path)) for text in study.require]


def _facts(machines: Mapping[NodeName, MachineState], node: Node) -> MachineFacts | None:
    machine = machines.get(node.name)
    return None if machine is None else machine.facts


class Admission:
    """Keeps, for the jobs that any machine may run, the groups of tasks that fit the same machines."""

    def __init__(self, judge: Judge = everything_fits) -> None:
        self._judge = judge
        self._members: dict[str, frozenset[NodeName]] = {}
        self._known: dict[StudyId, tuple[Node, ...]] = {}

    def fits(self, group: str, node: NodeName) -> bool:
        return node in self._members.get(group, frozenset())

    def follow(self, book: Book, nodes: Sequence[Node]) -> None:
        """Group the tasks of every study that is new, and of all when the machines changed. Mutates: the book."""
        present = tuple(nodes)
        for study_id in book.studies:
            if self._known.get(study_id) is not present and self._known.get(study_id) != present:
                self._known[study_id] = present
                book.set_groups(study_id, self._groups(book.study(study_id), book.tasks(study_id), present))

    def forget(self) -> None:
        """Judge everything anew at the next `follow`: something was learnt of a machine. Mutates: self."""
        self._known.clear()

    def _groups(self, study: StudyState, tasks: Mapping[TaskId, Task], nodes: Sequence[Node]) -> dict[TaskId, str]:
        groups = {}
        for task_id, task in tasks.items():
            members = frozenset(node.name for node in nodes if isinstance(self._judge(study, task, node), Fit))
            group = f"{study.study_id}/{hash(members):x}"
            self._members[group] = members
            groups[task_id] = group
        return groups
