"""The site: where a driver finds its machines. Either this one, with a Ray that lives as long as the command, or a fleet."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleet.cluster.admission import Targets, conditions, targets_of
from fleet.cluster.daemon import ClusterInfo, attached, ensure_head, is_alive, present
from fleet.cluster.dispatch import Cluster
from fleet.cluster.head import embedded
from fleet.cluster.signals import termination_as_interrupt
from fleet.errors import ClusterError, UsageError
from fleet.ledger.machines import MachineState
from fleet.nodes.inventory import load_inventory
from fleet.nodes.node import Node, NodeName
from fleet.nodes.shape import read_shape
from fleet.study.study import Study

REREAD_S = 10.0
"""How often the inventory is read again while its machines are used."""


class Site(Protocol):
    """Machines, and a way to a cluster of them."""

    def nodes(self) -> Sequence[Node]: ...

    def ask(self, study: Study, machines: Mapping[NodeName, MachineState]) -> tuple[Study, Targets]:
        """The study as it runs here, and who is to run what. Raises: UsageError when a task fits no machine."""
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

    def ask(self, study: Study, machines: Mapping[NodeName, MachineState]) -> tuple[Study, Targets]:
        """Where there is only one machine, its name is no part of a job; the checkpoint must be here.

        What is required of machines is read, and not asked of this one: the study that runs here requires nothing.
        """
        conditions(study)
        for checkpoint in {task.checkpoint for task in study.tasks}:
            read_shape(checkpoint)
        here = dataclasses.replace(study, machines="any", require=())
        return here, targets_of(here, self.nodes(), machines)

    def present(self) -> frozenset[NodeName]:
        return frozenset({self.node.name})

    @contextlib.contextmanager
    def connect(self) -> Iterator[Cluster]:
        with embedded(self.node):
            yield self


class Fleet:
    """The machines of an inventory, on the cluster that `fleet up` made of them."""

    def __init__(self, inventory: Path, data: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._data, self._clock = inventory, data, clock
        self._inventory = load_inventory(inventory)
        self._read_s = clock()
        self._info: ClusterInfo | None = None

    def nodes(self) -> Sequence[Node]:
        """The machines, read again now and then: one that is added while the head serves is used. Mutates: self."""
        if self._clock() - self._read_s > REREAD_S:
            self._read_s = self._clock()
            with contextlib.suppress(UsageError):  # a file that is being edited: the machines stay as they were
                self._inventory = load_inventory(self._folder)
        return self._inventory.nodes

    def ask(self, study: Study, machines: Mapping[NodeName, MachineState]) -> tuple[Study, Targets]:
        return study, targets_of(study, self.nodes(), machines)

    def present(self) -> frozenset[NodeName]:
        if self._info is None or not is_alive(self._info):
            raise ClusterError("the head's Ray is gone", "fleet up starts it again")
        return present()

    @contextlib.contextmanager
    def connect(self) -> Iterator[Cluster]:
        self._info = ensure_head(self._data, self._inventory.head)
        with attached(self._info), termination_as_interrupt():
            yield self
