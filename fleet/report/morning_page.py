"""The morning summary drawn: on a terminal, and as one HTML file in the report's style that needs nothing else."""

from __future__ import annotations

from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from fleet.report.cells import printable, text
from fleet.report.html import template
from fleet.report.morning import MorningReport
from fleet.report.morning_tables import headline, tables, title, when
from fleet.report.terminal import print_table, styled, widened


def print_morning(report: MorningReport, console: Console, *, zone: tzinfo | None = None) -> None:
    """Print the summary. Names from outside are printed as text, never read as markup."""
    console = widened(console)
    console.print(Text(printable(title(report)), style="bold"))
    console.print(styled(headline(report)))
    console.print(Text(printable(when(report, zone)), style="dim"))
    for warning in report.warnings:
        console.print(styled(text(f"warning: {warning}", "warn")))
    for table in tables(report):
        print_table(console, table)


def morning_html(report: MorningReport, *, zone: tzinfo | None = None) -> str:
    """Render the whole page; the template escapes all text."""
    return template("morning.html.jinja").render(
        title=printable(title(report)),
        headline=headline(report),
        when=printable(when(report, zone)),
        warnings=[printable(warning) for warning in report.warnings],
        tables=tables(report),
    )
