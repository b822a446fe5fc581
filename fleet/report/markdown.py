"""The report as Markdown: every table, readable as text and on a forge."""

from __future__ import annotations

import re

from fleet.report.cells import Cell, Table, describe, printable, verdict_line
from fleet.report.hardware import HardwareReport
from fleet.report.tables import machines_table, sections


def render(report: HardwareReport) -> str:
    """Names from outside are escaped: they are text, never a link, a tag or a new cell."""
    heading = f"# {'SYNTHETIC: ' if report.synthetic else ''}{_escaped(report.study)}"
    blocks = [heading, _cell(verdict_line(report))]
    if report.warnings:
        blocks.append("\n".join(f"- Warning: {_escaped(warning)}" for warning in report.warnings))
    if report.rows:
        blocks.append(_table(machines_table(report), level=2))
    for machine in report.machines:
        blocks.append(f"## {_escaped(machine.name)}")
        blocks.append(_escaped(describe(machine)))
        blocks.extend(_table(table, level=3) for table in sections(report, machine.name))
    return "\n\n".join(blocks) + "\n"


def _table(table: Table, *, level: int) -> str:
    lines = [f"{'#' * level} {table.title}", ""]
    if table.note:
        lines += [table.note, ""]
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|" + "|".join("---:" if numeric else "---" for numeric in table.numeric) + "|")
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    escaped = _escaped(cell.text)
    return f"**{escaped}**" if cell.tone == "bad" else escaped


def _escaped(value: str) -> str:
    """Escape what Markdown or HTML would act on, and leave alone what only looks like it ("[1.2, 1.3]", "a_b")."""
    value = printable(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    value = re.sub(r"([\\`*|])", r"\\\1", value)
    return value.replace("](", "]\\(").replace("![", "!\\[")
