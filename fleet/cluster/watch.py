"""What a command line can watch while a study runs: three calls, and a watcher that does not care."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleet.ledger.state import JobState
from fleet.nodes.node import NodeName
from worker.contract.spool import Progress
from worker.contract.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How far the study is."""

    total: int
    done: int
    failed: int


class Watcher(Protocol):
    """Told of everything in the driver's thread; it must return quickly."""

    def started(self, node: NodeName, task: Task, number: int, count: Count) -> None: ...

    def progressed(self, node: NodeName, progress: Progress) -> None: ...

    def ended(self, node: NodeName, task: Task, state: JobState, count: Count) -> None: ...


class NobodyWatches:
    """The null watcher."""

    def started(self, node: NodeName, task: Task, number: int, count: Count) -> None:
        """Do nothing."""

    def progressed(self, node: NodeName, progress: Progress) -> None:
        """Do nothing."""

    def ended(self, node: NodeName, task: Task, state: JobState, count: Count) -> None:
        """Do nothing."""
