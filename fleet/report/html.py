"""The report as one HTML file that needs nothing else: no network, no script, its own style, light and dark.

The first screen answers which machine, how fast, and whether to trust it; everything else follows below. All text
passes through the template's escaping; the charts are drawn by charts.py and escaped there.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from fleet.report.cells import describe, label, number, printable, times, trust_cell, verdict_line
from fleet.report.cells import fastest as fastest_row
from fleet.report.charts import speed_chart, speedup_chart
from fleet.report.hardware import HardwareReport
from fleet.report.tables import machines_table, sections

_OPEN_TABLES = ("Speed", "Experts and memory", "Flags")
"""Shown at once; the others open on a click."""


def render(report: HardwareReport) -> str:
    """Render the whole page."""
    charts = [
        ("Decode speed", "Medians with their 95 % intervals, prefill left out.", speed_chart(report)),
        ("Speedup", "Speculative over greedy; the dashed line is no gain.", speedup_chart(report)),
    ]
    return template("page.html.jinja").render(
        study=printable(report.study),
        synthetic=report.synthetic,
        verdict=verdict_line(report),
        warnings=[printable(warning) for warning in report.warnings],
        cards=[_card(report, machine.name) for machine in report.machines],
        overview=machines_table(report) if len(report.machines) > 1 else None,
        charts=[(title, note, Markup(svg)) for title, note, svg in charts if svg],  # noqa: S704 - escaped in charts.py
        machines=[
            (printable(machine.name), describe(machine), sections(report, machine.name)) for machine in report.machines
        ],
        open_tables=_OPEN_TABLES,
    )


def template(name: str) -> Template:
    """A template that escapes everything and fails on a name that it is not given."""
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template(name)


def _card(report: HardwareReport, name: str) -> dict[str, object]:
    """What the first screen says of a machine: its fastest row that may be compared, and the trust in all its rows."""
    machine = next(machine for machine in report.machines if machine.name == name)
    rows = report.rows_of(name)
    best = fastest_row(rows)
    return {
        "name": printable(name),
        "hardware": describe(machine),
        "trust": trust_cell(rows),
        "speculative": None if best is None else number(best.figures.speculative.decode_tok_s.median),
        "greedy": None if best is None else number(best.figures.greedy.decode_tok_s.median),
        "speedup": None if best is None else times(best.figures.speedup.median),
        "at": None if best is None else label(best),
    }
