"""Which machines a command means: the inventory's, or this one where it names none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.cli.data import DataDirectory

if TYPE_CHECKING:
    from fleet.cluster.site import Site
    from fleet.nodes.inventory import Inventory


def find_site(inventory: Path | None, directory: DataDirectory, *, local: bool = False) -> Site:
    """The fleet of the inventory, or this machine: when it is asked for, or when there are no others.

    Raises: UsageError for an inventory that cannot be read.
    """
    from fleet.cluster.site import Fleet, ThisMachine
    from fleet.nodes.node import this_machine

    if local:
        return ThisMachine(this_machine())
    known = known_inventory(inventory, directory)
    return Fleet(known.folder, directory.root) if known.nodes else ThisMachine(this_machine())


def known_inventory(chosen: Path | None, directory: DataDirectory) -> Inventory:
    """The inventory that a command means. Raises: UsageError when it cannot be read."""
    from fleet.nodes.inventory import find_inventory, load_inventory

    return load_inventory(find_inventory(chosen, directory.root))
