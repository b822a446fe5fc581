"""A column that was not measured is null everywhere, and every report still renders, without a made-up number."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

from fleet.report import html, json, markdown, terminal
from fleet.report.hardware import HardwareReport, hardware_report
from tests.golden.situations import PROMPTS
from tests.golden.study_tables import RunSpec, study_tables
from worker.contract.schema import SCHEMAS

TABLES = study_tables(RunSpec(prompts=PROMPTS), RunSpec(verify_width=2, prompts=PROMPTS))
KEYS = {"study_id", "task_id", "attempt_id", "prompt_id"}
COLUMNS = [(table, name) for table in ("runs", "repeats", "steps", "checks") for name in SCHEMAS[table].names]


def nulled(tables: dict[str, pa.Table], table: str, *columns: str) -> dict[str, pa.Table]:
    """The tables with whole columns set to null."""
    found = tables[table]
    for column in columns:
        index = found.schema.get_field_index(column)
        found = found.set_column(index, found.schema.field(index), pa.nulls(len(found), found.schema.field(index).type))
    return tables | {table: found}


def render_all(report: HardwareReport) -> None:
    json.render(report)
    markdown.render(report)
    terminal.render(report, Console(file=io.StringIO(), width=100))


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[f"{table}-{column}" for table, column in COLUMNS])
def test_a_report_renders_with_any_one_column_null(table: str, column: str) -> None:
    render_all(hardware_report(nulled(TABLES, table, column), study="s"))


def test_a_report_renders_with_every_measurement_null() -> None:
    tables = dict(TABLES)
    for table in ("runs", "repeats", "steps", "checks"):
        tables = nulled(tables, table, *(set(SCHEMAS[table].names) - KEYS - {"path"}))
    report = hardware_report(tables, study="s")
    render_all(report)
    html.render(report)


@pytest.mark.parametrize("table", ["repeats", "steps", "layers", "tokens", "checks", "trace"])
def test_a_report_renders_without_a_table(table: str) -> None:
    render_all(hardware_report({name: value for name, value in TABLES.items() if name != table}, study="s"))
