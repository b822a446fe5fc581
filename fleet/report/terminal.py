"""The report on a terminal: what fits 100 columns and answers which machine, how fast, and whether to trust it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fleet.report.cells import Cell, Table, Tone, describe, printable, text, verdict_line
from fleet.report.hardware import HardwareReport
from fleet.report.prefetch import prefetch_table
from fleet.report.tables import costs_table, experts_table, flags_table, machines_table, speed_table

FULL_WIDTH = 100
"""Columns at which no figure is broken over two lines."""

_STYLES: dict[Tone, str] = {"plain": "", "good": "green", "warn": "yellow", "bad": "bold red", "muted": "dim"}


def render(report: HardwareReport, console: Console) -> None:
    """Print the report. Names from outside are printed as text, never read as markup.

    A pipe or a file has no width of its own: there the tables take the columns that they need, up to FULL_WIDTH.
    """
    if not console.is_terminal and console.width < FULL_WIDTH:
        console = Console(file=console.file, width=FULL_WIDTH, color_system=None)
    console.print(Text(f"Report: {printable(report.study)}", style="bold"))
    console.print(_styled(verdict_line(report)))
    for warning in report.warnings:
        console.print(_styled(text(f"warning: {warning}", "warn")))
    if not report.rows:
        return
    if len(report.machines) > 1:
        _print_table(console, machines_table(report))
    for machine in report.machines:
        rows = report.rows_of(machine.name)
        console.print()
        console.print(Text(f"{printable(machine.name)}: ", style="bold") + Text(printable(describe(machine))))
        _print_table(console, speed_table(rows))
        _print_table(console, experts_table(rows))
        _print_table(console, prefetch_table(rows))
        _print_table(console, costs_table(rows))
        _print_table(console, flags_table(rows))


def _print_table(console: Console, table: Table) -> None:
    if not table.rows:
        return
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name, numeric in zip(table.columns, table.numeric, strict=True):
        drawn.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_styled(cell) for cell in row))
    console.print()
    console.print(Text(table.title, style="bold") + Text(f"  {table.note}" if table.note else "", style="not bold dim"))
    console.print(drawn)


def _styled(cell: Cell) -> Text:
    return Text(cell.text, style=_STYLES[cell.tone])
