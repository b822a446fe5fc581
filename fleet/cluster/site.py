"""The site: where a driver finds its machines. Either this one, with a Ray that lives as long as the command, or a fleet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.cluster.dispatch import Cluster
from fleet.cluster.head import embedded
from fleet.nodes.node import Node, NodeName


class Site(Protocol):
    """Machines, and a way to a cluster of them."""

    def nodes(self) -> Sequence[Node]: ...

    def connect(self) -> contextlib.AbstractContextManager[Cluster]:
        """The cluster while the block lasts. Raises: ClusterError when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """A site and a cluster of one machine: this one."""

    node: Node

    def nodes(self) -> Sequence[Node]:
        return (self.node,)

    def present(self) -> frozenset[NodeName]:
        return frozenset({self.node.name})

    @contextlib.contextmanager
    def connect(self) -> Iterator[Cluster]:
        with embedded(self.node):
            yield self
