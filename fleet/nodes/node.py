"""A node: one Mac that runs benchmarks, known by its own name and by labels that the inventory gives it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

NodeName = NewType("NodeName", str)

LABEL_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""What Ray accepts as a label value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. `labels` are facts to choose by, e.g. chip or memory_gb; `address` is None for this machine."""

    name: NodeName
    address: str | None = None
    labels: Mapping[str, str | int] = field(default_factory=dict)


def this_machine() -> Node:
    """The node that runs tasks when no cluster is named: this machine, under its host name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node().split(".")[0])[:63].strip("-_.")
    return Node(name=NodeName(name or "localhost"))
