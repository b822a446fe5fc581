"""The site: where a driver finds its machines. Either this one, with a Ray that lives as long as the command, or a fleet."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.cluster.admission import Targets, targets_of
from fleet.cluster.dispatch import Cluster
from fleet.cluster.head import embedded
from fleet.ledger.machines import MachineState
from fleet.nodes.node import Node, NodeName
from fleet.nodes.shape import read_shape
from fleet.study.study import Study


class Site(Protocol):
    """Machines, and a way to a cluster of them."""

    def nodes(self) -> Sequence[Node]: ...

    def targets(self, study: Study, machines: Mapping[NodeName, MachineState]) -> Targets:
        """Who is to run what. Raises: UsageError when a task fits no machine."""
        ...

    def connect(self) -> contextlib.AbstractContextManager[Cluster]:
        """The cluster while the block lasts. Raises: ClusterError when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """A site and a cluster of one machine: this one."""

    node: Node

    def nodes(self) -> Sequence[Node]:
        return (self.node,)

    def targets(self, study: Study, machines: Mapping[NodeName, MachineState]) -> Targets:
        """Where there is only one machine, its name is no part of a job; the checkpoint must be here."""
        for task in study.tasks:
            read_shape(task.checkpoint)
        here = dataclasses.replace(study, machines="any", require=())
        return targets_of(here, self.nodes(), machines)

    def present(self) -> frozenset[NodeName]:
        return frozenset({self.node.name})

    @contextlib.contextmanager
    def connect(self) -> Iterator[Cluster]:
        with embedded(self.node):
            yield self
