"""The inventory: a folder with `fleet.toml` (the head, ssh, the store) and one file per machine. Strict, and read whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fleet.errors import UsageError
from fleet.nodes.load import SshTable, load_nodes
from fleet.nodes.node import Node
from fleet.nodes.words import Address, PathText, Port, PortRange
from fleet.strict import Strict, read_toml

FLEET_FILE = "fleet.toml"
MACHINES = "machines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where the head listens. `ports`: the first and the last port for Ray's workers, on the head and on the nodes."""

    address: str = "127.0.0.1"
    port: int = 6379
    ports: tuple[int, int] = (20000, 20999)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All that a folder says. Without machines, this machine is the fleet."""

    folder: Path
    head: Head = Head()
    store: Path | None = None
    nodes: tuple[Node, ...] = ()

    def choose(self, names: list[str] | tuple[str, ...]) -> tuple[Node, ...]:
        """The machines with these names, in the inventory's order; without names, all of them.

        Raises: UsageError naming those that exist.
        """
        known = {node.name for node in self.nodes}
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none; fleet machines add NAME ADDRESS adds one"
                raise UsageError(f"{self.folder}: there is no machine {name!r}", f"there are: {listed}")
        return tuple(node for node in self.nodes if not names or node.name in names)


class _HeadTable(Strict):
    address: Address = Head().address
    port: Port = Head().port
    port_range: PortRange = Field(default_factory=lambda: list(Head().ports))


class _StorePaths(Strict):
    store: PathText | None = None


class _FleetFile(Strict):
    head: _HeadTable = _HeadTable()
    ssh: SshTable = SshTable()
    paths: _StorePaths = _StorePaths()


def find_inventory(chosen: Path | None, data: Path) -> Path:
    """The folder that a command line names; else ./inventory when it holds fleet.toml, else the data directory's.

    Raises: UsageError when the one that was named is no directory.
    """
    if chosen is not None:
        folder = chosen.expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no such inventory", "name a directory that holds fleet.toml")
        return folder
    here = Path("inventory").absolute()
    return here if (here / FLEET_FILE).is_file() else data / "inventory"


def load_inventory(folder: Path) -> Inventory:
    """Read and check everything in the folder; what is not there has its defaults.

    Raises: UsageError naming the file, the key and what is allowed.
    """
    path = folder / FLEET_FILE
    fleet = read_toml(path, _FleetFile) if path.exists() else _FleetFile()
    first, last = fleet.head.port_range
    if first <= fleet.head.port <= last:
        raise UsageError(f"{path}: head.port {fleet.head.port} is inside head.port_range", "choose one outside it")
    store = fleet.paths.store
    return Inventory(
        folder=folder,
        head=Head(address=fleet.head.address, port=fleet.head.port, ports=(first, last)),
        store=None if store is None else Path(store).expanduser(),
        nodes=load_nodes(folder / MACHINES, fleet.ssh),
    )
