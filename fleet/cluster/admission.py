"""Admission: which job may run where. Asked once when a study is submitted, and followed while the machines change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleet.cluster.book import Book
from fleet.nodes.fit import Fit, Unfit
from fleet.nodes.node import Node, NodeName
from fleet.study.study import StudyId
from worker.contract.task import Task, TaskId

Judge = Callable[[StudyId, Task, Node], Fit | Unfit]
"""Whether a task of a study fits a machine, as far as is known now."""


def everything_fits(_study_id: StudyId, _task: Task, _node: Node) -> Fit | Unfit:
    return Fit()


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
                book.set_groups(study_id, self._groups(study_id, book.tasks(study_id), present))

    def forget(self) -> None:
        """Judge everything anew at the next `follow`: something was learnt of a machine. Mutates: self."""
        self._known.clear()

    def _groups(self, study_id: StudyId, tasks: Mapping[TaskId, Task], nodes: Sequence[Node]) -> dict[TaskId, str]:
        groups = {}
        for task_id, task in tasks.items():
            members = frozenset(node.name for node in nodes if isinstance(self._judge(study_id, task, node), Fit))
            group = f"{study_id}/{hash(members):x}"
            self._members[group] = members
            groups[task_id] = group
        return groups
