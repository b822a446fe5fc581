"""`fleet doctor`: every known trap, on the head and on the machines, with what mends it."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from fleet.cli.data import DataOption, InventoryOption, data_directory
from fleet.cli.sites import known_inventory
from fleet.cli.submit import JsonOption
from fleet.cli.up import MachinesArgument
from fleet.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.cluster.doctor import Diagnosis


def doctor(
    machines: MachinesArgument = None,
    *,
    inventory: InventoryOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the head and the machines for what is known to go wrong. Changes nothing."""
    from fleet.cluster.doctor import diagnose

    directory = data_directory(data)
    known = known_inventory(inventory, directory)
    found = diagnose(known.choose(machines or []), data=directory.root, head=known.head)
    if as_json:
        answer = [
            {"name": each.machine, "checks": [dataclasses.asdict(one) for one in each.findings]} for each in found
        ]
        typer.echo(json.dumps({"machines": answer}, ensure_ascii=False, indent=2))
    else:
        _print_table(found)
    problems = [(each.machine, one) for each in found for one in each.findings if one.level == "problem"]
    if problems:
        machine, first = problems[0]
        raise ClusterError(
            f"{len(problems)} problems; the first: {machine}, {first.check}: {first.detail}", first.remedy
        )


def _print_table(found: Sequence[Diagnosis]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("machine", "check", "", "found", "what mends it"):
        table.add_column(name, no_wrap=name in ("machine", "check", ""), overflow="fold")
    for each in found:
        for finding in each.findings:
            table.add_row(each.machine, finding.check, finding.level, finding.detail, finding.remedy)
    Console(highlight=False, markup=False).print(table)
