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
    console = widened(console)
    console.print(Text(f"Report: {printable(report.study)}", style="bold"))
    console.print(styled(verdict_line(report)))
    for warning in report.warnings:
        console.print(styled(text(f"warning: {warning}", "warn")))
    if not report.rows:
        return
    if len(report.machines) > 1:
        print_table(console, machines_table(report))
    for machine in report.machines:
        rows = report.rows_of(machine.name)
        console.print()
        console.print(Text(f"{printable(machine.name)}: ", style="bold") + Text(printable(describe(machine))))
        print_table(console, speed_table(rows))
        print_table(console, experts_table(rows))
        print_table(console, prefetch_table(rows))
        print_table(console, costs_table(rows))
        print_table(console, flags_table(rows))


def widened(console: Console) -> Console:
    """The console, or one as wide as no figure is broken on where it is no terminal."""
    if console.is_terminal or console.width >= FULL_WIDTH:
        return console
    return Console(file=console.file, width=FULL_WIDTH, color_system=None)


def print_table(console: Console, table: Table) -> None:
    """Print a table that has rows."""
    if not table.rows:
        return
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name, numeric in zip(table.columns, table.numeric, strict=True):
        drawn.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(styled(cell) for cell in row))
    console.print()
    console.print(Text(table.title, style="bold") + Text(f"  {table.note}" if table.note else "", style="not bold dim"))
    console.print(drawn)


def styled(cell: Cell) -> Text:
    """A cell's text in its tone."""
    return Text(cell.text, style=_STYLES[cell.tone])
