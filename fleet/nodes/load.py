"""`machines/*.toml` in, nodes out: one file per machine, strict keys, possibly none at all."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from fleet.errors import UsageError
from fleet.nodes.node import LABEL_PATTERN, Node, NodeName
from fleet.strict import Strict, read_toml


class _Machine(Strict):
    name: str
    address: str
    labels: dict[str, str | int] = Field(default_factory=dict)


def load_nodes(folder: Path) -> tuple[Node, ...]:
    """Every machine of an inventory folder, by file name. A folder that does not exist holds none.

    Raises: UsageError naming the file and the key, or the two files that use one name.
    """
    nodes: dict[NodeName, Path] = {}
    found = []
    for path in sorted(folder.glob("*.toml")):
        node = _load_node(path)
        if other := nodes.get(node.name):
            raise UsageError(f"{path}: the name {node.name!r} is taken by {other}", "give each machine its own name")
        nodes[node.name] = path
        found.append(node)
    return tuple(found)


def _load_node(path: Path) -> Node:
    machine = read_toml(path, _Machine)
    labels = {"name": machine.name} | {f"labels.{key}": value for key, value in machine.labels.items()}
    for key, value in labels.items():
        if not LABEL_PATTERN.fullmatch(str(value)):
            raise UsageError(f"{path}: {key} is {value!r}", "use at most 63 letters, digits, '_', '.' and '-'")
    return Node(name=NodeName(machine.name), address=machine.address, labels=dict(machine.labels))
