"""`fleet machines`: the inventory's machines: list, show, add, remove. What runs on them is `fleet up`'s business."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.data import DataOption, InventoryOption, data_directory
from fleet.cli.sites import known_inventory
from fleet.cli.submit import JsonOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.ledger.events import MachineReported
    from fleet.nodes.inventory import Inventory
    from fleet.nodes.node import Node

app = typer.Typer(no_args_is_help=True, help="The machines of the inventory.", add_completion=False)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The machine's name.", show_default=False)]


@app.command("list")
def list_machines(*, inventory: InventoryOption = None, data: DataOption = None, as_json: JsonOption = False) -> None:
    """List the machines with what is known of them."""
    known = _load(inventory, data)
    reports = _reports(data)
    if as_json:
        machines = [machine_dict(node, reports.get(node.name)) for node in known.nodes]
        typer.echo(json.dumps({"inventory": str(known.folder), "machines": machines}, ensure_ascii=False, indent=2))
    elif not known.nodes:
        typer.echo(f"no machines in {known.folder}; fleet machines add NAME ADDRESS adds one")
    else:
        _print_table([machine_dict(node, reports.get(node.name)) for node in known.nodes])


@app.command()
def show(
    name: NameArgument, *, inventory: InventoryOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show one machine: what the inventory says of it, and what it said of itself."""
    (node,) = _load(inventory, data).choose([name])
    machine = machine_dict(node, _reports(data).get(node.name))
    if as_json:
        typer.echo(json.dumps(machine, ensure_ascii=False, indent=2))
        return
    for key, value in _flat(machine):
        typer.echo(f"{key:<22} {value}")


@app.command()
def add(
    name: NameArgument,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Host name or IP address.", show_default=False)],
    *,
    user: Annotated[str | None, typer.Option(help="The ssh user.")] = None,
    port: Annotated[int | None, typer.Option(help="The ssh port.")] = None,
    key: Annotated[str | None, typer.Option(help="The file with the ssh key.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A word to choose it by; may be repeated.")] = None,
    optional: Annotated[
        bool, typer.Option("--optional", help="It may be absent without that being a failure.")
    ] = False,
    inventory: InventoryOption = None,
    data: DataOption = None,
) -> None:
    """Write a machine's file. fleet up NAME makes a node of it."""
    from fleet.nodes.edit import add_machine

    known = _load(inventory, data)
    path = add_machine(known, name, address, user=user, port=port, key=key, tags=tuple(tag or ()), optional=optional)
    typer.echo(f"wrote {path}; next: fleet up {name}")


@app.command()
def remove(name: NameArgument, *, inventory: InventoryOption = None, data: DataOption = None) -> None:
    """Delete a machine's file. What was measured there stays; fleet down NAME ends what runs there, before."""
    from fleet.nodes.edit import remove_machine

    typer.echo(f"removed {remove_machine(_load(inventory, data), name)}")


@app.command()
def pause(
    name: NameArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Kept, and shown where it matters.")] = "paused by its owner",
    inventory: InventoryOption = None,
    data: DataOption = None,
) -> None:
    """Start nothing more on a machine for now; what runs there goes on."""
    from fleet.ledger.events import MachinePaused
    from fleet.ledger.sqlite import record

    (node,) = _load(inventory, data).choose([name])
    record(data_directory(data).root, MachinePaused(machine=node.name, reason=reason))
    typer.echo(f"{node.name} is paused; fleet machines resume {node.name} uses it again")


@app.command()
def resume(name: NameArgument, *, inventory: InventoryOption = None, data: DataOption = None) -> None:
    """Use a machine again that was paused, or put aside after losses."""
    from fleet.ledger.events import MachineResumed
    from fleet.ledger.sqlite import record

    (node,) = _load(inventory, data).choose([name])
    record(data_directory(data).root, MachineResumed(machine=node.name))
    typer.echo(f"{node.name} is used again")


def machine_dict(node: Node, report: MachineReported | None) -> dict[str, Any]:
    """A machine as JSON: stable names, null for what is not known."""
    from fleet.nodes.constraints import MachineFacts

    facts = MachineFacts.from_report(report.facts) if report else MachineFacts()
    return {
        "name": node.name,
        "address": node.address,
        "tags": list(node.tags),
        "optional": node.optional,
        "state": _state(node, report),
        "ssh": {key: _plain(value) for key, value in dataclasses.asdict(node.ssh).items()},
        "paths": dataclasses.asdict(node.paths) | {"ray_temp": node.ray_temp},
        "python": node.python,
        "offline": node.offline,
        "window": node.window,
        "days": node.days,
        "timezone": node.timezone,
        "pause": node.pause,
        "facts": dataclasses.asdict(facts),
        "build_hash": report.build_hash if report else None,
    }


def _state(node: Node, report: MachineReported | None) -> str:
    if node.pause:
        return f"paused: {node.pause}"
    return "known" if report else "never up"


def _load(inventory: Path | None, data: Path | None) -> Inventory:
    return known_inventory(inventory, data_directory(data))


def _reports(data: Path | None) -> Mapping[str, MachineReported]:
    from fleet.cli.machine_reports import read_reports

    return read_reports(data_directory(data).root)


def _print_table(machines: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("machine", "address", "tags", "chip", "GPU cores", "memory", "OS", "state"):
        table.add_column(name, no_wrap=name == "machine", overflow="fold")
    for machine in machines:
        facts = machine["facts"]
        memory = None if facts["memory_gb"] is None else f"{facts['memory_gb']:g} GiB"
        cells = (facts["chip"], facts["gpu_cores"], memory, facts["os"], machine["state"])
        table.add_row(
            machine["name"],
            machine["address"],
            " ".join(machine["tags"]),
            *("-" if cell is None else str(cell) for cell in cells),
        )
    Console(highlight=False).print(table)


def _flat(machine: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for key, value in machine.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            shown = ", ".join(value) if isinstance(value, list) else "-" if value is None else str(value)
            rows.append((f"{prefix}{key}", shown))
    return rows


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
