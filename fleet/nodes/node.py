"""A node: one Mac that runs benchmarks, known by the name that the inventory gives it.

What the inventory says of a machine is here: how to reach it, where its files are, when it may work. What the machine
says of itself (chip, memory, ...) is `MachineFacts`, in `constraints.py`.
"""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NewType

NodeName = NewType("NodeName", str)

LABEL_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""What Ray accepts as a label value."""

MAX_SOCKET_BYTES = 103
"""The longest path of a Unix socket on macOS; Linux allows four more."""
SOCKET_SUFFIX = "/session_2026-12-31_23-59-59_999999_4194304/sockets/plasma_store"
"""What Ray appends to its temporary directory for its longest socket."""
RAY_TEMP_MAX_BYTES = MAX_SOCKET_BYTES - len(SOCKET_SUFFIX) - len("/private")
"""macOS resolves /tmp to /private/tmp."""
RAY_TEMP_PREFIX = "/tmp/fr_"  # noqa: S108 - short by need; made with mode 0700, and refused when another user owns it
_SHORT_NAME = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """How ssh reaches a machine; what is None is left to ssh's own configuration."""

    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    connect_timeout_s: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePaths:
    """Where a machine keeps its files. A leading `~/` is the home of the ssh user there."""

    root: str = "~/.mlx-fleet"
    lock: str | None = None
    cache: str | None = None
    ray_temp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. `address` is None for this machine, which needs no ssh.

    `optional`: it may be absent without that being a failure. `python`: the version it gets, None for the head's.
    `offline`: its uv installs from its cache only. `pause`: why it gets no work, None when it does.
    """

    name: NodeName
    address: str | None = None
    tags: tuple[str, ...] = ()
    optional: bool = False
    ssh: SshTarget = SshTarget()
    paths: NodePaths = NodePaths()
    python: str | None = None
    offline: bool = False
    window: str | None = None
    days: str | None = None
    timezone: str | None = None
    pause: str | None = None

    @property
    def ray_temp(self) -> str:
        """Ray's temporary directory there: the inventory's, or a short one made of the name."""
        return self.paths.ray_temp or RAY_TEMP_PREFIX + _shortened(self.name)


def _shortened(name: str) -> str:
    if len(name) <= _SHORT_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:7]
    return f"{name[: _SHORT_NAME - 8]}-{digest}"


def this_machine() -> Node:
    """The node that runs tasks when no cluster is named: this machine, under its host name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", platform.node().split(".")[0])[:63].strip("-_.")
    return Node(name=NodeName(name or "localhost"))
