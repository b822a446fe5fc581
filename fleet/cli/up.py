"""`fleet up` and `fleet down`: machines into the cluster and out of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.data import DataOption, InventoryOption, data_directory
from fleet.cli.sites import known_inventory
from fleet.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.cluster.join import Absent, Broken, Down, Ready

MachinesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MACHINE]...", help="Names of machines. Default: all.", show_default=False),
]


def up(machines: MachinesArgument = None, *, inventory: InventoryOption = None, data: DataOption = None) -> None:
    """Start the head, and bring machines into the cluster over ssh. What is up already is left as it is."""
    from fleet.cli.machine_reports import append_reports
    from fleet.cluster.join import Ready, bring_up

    directory = data_directory(data)
    known = known_inventory(inventory, directory)
    nodes = known.choose(machines or [])
    typer.echo("head: starts, or is there already", err=True)
    answers = bring_up(nodes, data=directory.root, head=known.head, say=_Teller())
    append_reports(directory.root, [answer.report for answer in answers if isinstance(answer, Ready)])
    if not nodes:
        typer.echo(f"the head is up; no machines in {known.folder}: fleet machines add NAME ADDRESS adds one")
    _conclude(answers, "up")


def down(machines: MachinesArgument = None, *, inventory: InventoryOption = None, data: DataOption = None) -> None:
    """End what the fleet runs on machines and, without names, the head. What is installed there stays."""
    from fleet.cluster.daemon import stop_head
    from fleet.cluster.join import take_down

    directory = data_directory(data)
    known = known_inventory(inventory, directory)
    answers = take_down(known.choose(machines or []), say=_Teller())
    if not machines:
        typer.echo("head: ended" if stop_head(directory.root) else "head: did not run", err=True)
    _conclude(answers, "down")


class _Teller:
    """Lines on stderr from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()

    def __call__(self, machine: str, text: str) -> None:
        with self._guard:
            typer.echo(f"{machine}: {text}", err=True)


def _conclude(answers: Sequence[Ready | Absent | Broken | Down], done: str) -> None:
    """One line per machine on stdout. Raises: ClusterError when one failed."""
    from fleet.cluster.join import Absent, Broken

    broken = [answer for answer in answers if isinstance(answer, Broken)]
    for answer in answers:
        match answer:
            case Broken():
                typer.echo(f"{answer.machine}  failed")
            case Absent():
                typer.echo(f"{answer.machine}  absent (optional)")
            case _:
                changed = getattr(answer, "changed", None)
                note = "" if changed is None else f"  ({', '.join(changed) or 'nothing to change'})"
                typer.echo(f"{answer.machine}  {done}{note}")
    for answer in broken[:-1]:
        typer.echo(f"error: {answer.message}", err=True)
        typer.echo(f"hint: {answer.hint}", err=True)
    if broken:
        raise ClusterError(broken[-1].message, broken[-1].hint)
