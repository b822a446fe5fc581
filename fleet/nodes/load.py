"""`machines/*.toml` in, nodes out: one file per machine, strict keys, possibly none at all."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from fleet.errors import UsageError
from fleet.nodes.node import Node, NodeName, NodePaths, SshTarget
from fleet.nodes.window import EVERY_DAY, LOCAL, parse_window
from fleet.nodes.words import Address, Label, PathText, Port, PythonVersion, RayTemp, Text, Timeout, User
from fleet.strict import Strict, read_toml


class SshTable(Strict):
    """[ssh] of a machine, or of fleet.toml for all machines."""

    user: User | None = None
    port: Port | None = None
    key: PathText | None = None
    known_hosts: PathText | None = None
    connect_timeout_s: Timeout | None = None

    def over(self, defaults: SshTable) -> SshTarget:
        """These values, and the defaults' where these are silent."""
        values = defaults.model_dump(exclude_none=True) | self.model_dump(exclude_none=True)
        for name in ("key", "known_hosts"):
            if name in values:
                values[name] = Path(values[name]).expanduser()
        return SshTarget(**values)


class _PathsTable(Strict):
    root: PathText = NodePaths().root
    lock: PathText | None = None
    cache: PathText | None = None
    ray_temp: RayTemp | None = None


class Machine(Strict):
    """One machine file. Without a `name` it is the file's."""

    name: Label | None = None
    address: Address
    tags: list[Label] = Field(default_factory=list)
    optional: bool = False
    python: PythonVersion | None = None
    offline: bool = False
    window: Text | None = None
    days: Text | None = None
    timezone: Text | None = None
    pause: Text | None = None
    ssh: SshTable = SshTable()
    paths: _PathsTable = _PathsTable()


def load_nodes(folder: Path, ssh: SshTable | None = None) -> tuple[Node, ...]:
    """Every machine of an inventory folder, by file name. A folder that does not exist holds none.

    Raises: UsageError naming the file and the key, or the two files that use one name.
    """
    nodes: dict[str, Path] = {}
    found = []
    for path in machine_files(folder):
        node = load_node(path, ssh or SshTable())
        # Without regard to case, as the disk of a Mac keeps files.
        if other := nodes.get(node.name.casefold()):
            raise UsageError(f"{path}: the name {node.name!r} is taken by {other}", "give each machine its own name")
        nodes[node.name.casefold()] = path
        found.append(node)
    _refuse_shared_places(found)
    return tuple(found)


def machine_files(folder: Path) -> list[Path]:
    """The machine files of a folder, in the order of their names."""
    return sorted(path for path in folder.glob("*.toml") if not path.name.startswith("."))


def load_node(path: Path, ssh: SshTable) -> Node:
    """One machine, with the ssh defaults of its inventory. Raises: UsageError."""
    machine = read_toml(path, Machine)
    name = machine.name or path.stem
    if machine.name is None:
        try:
            Machine(name=name, address=machine.address)
        except ValueError:
            raise UsageError(f"{path}: the file's name can't be a machine's name", 'add the key name = "..."') from None
    _check_window(path, machine)
    return Node(
        name=NodeName(name),
        address=machine.address,
        tags=tuple(dict.fromkeys(machine.tags)),
        optional=machine.optional,
        ssh=machine.ssh.over(ssh),
        paths=NodePaths(**machine.paths.model_dump()),
        python=machine.python,
        offline=machine.offline,
        window=machine.window,
        days=machine.days,
        timezone=machine.timezone,
        pause=machine.pause,
    )


def _check_window(path: Path, machine: Machine) -> None:
    """Raises: UsageError naming the file and the part of the window that is wrong."""
    if machine.window is None:
        if machine.days is not None or machine.timezone is not None:
            raise UsageError(f"{path}: days and timezone say when a window opens", 'add window = "22:00-07:00"')
        return
    try:
        parse_window(machine.window, days=machine.days or EVERY_DAY, timezone=machine.timezone or LOCAL)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from error


def _refuse_shared_places(nodes: list[Node]) -> None:
    """Two entries with one host, user and root would overwrite each other's installation."""
    places: dict[tuple[object, ...], Node] = {}
    for node in nodes:
        place = (node.address, node.ssh.port, node.ssh.user, node.paths.root)
        if other := places.get(place):
            raise UsageError(
                f"machines {other.name} and {node.name} are one: {node.address}, {node.paths.root}",
                "remove one of them, or give it another paths.root",
            )
        places[place] = node
