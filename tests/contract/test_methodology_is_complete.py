"""Every column, every derived figure, every check and every flag is described where a reader looks for it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import worker
from fleet.compare import verdict
from fleet.compare.prefetch import PrefetchFigures
from fleet.report.json import row_dict
from tests.golden.situations import SITUATIONS
from worker.benchmark.capacity import CALIBRATION_TOKENS
from worker.benchmark.costs import ROUNDS
from worker.benchmark.trial import MIN_GAIN_RATIO
from worker.contract.schema import COUNTERS, SCHEMAS
from worker.contract.task import Eviction
from worker.experts.eviction.lfu import HALF_LIFE_FORWARDS
from worker.experts.eviction.s3fifo import SMALL_RATIO

TEXT = (Path(worker.__file__).parent / "METHODOLOGY.md").read_text(encoding="utf-8")
PREFETCH_FIGURES = {field.name for field in fields(PrefetchFigures)}
NAMED = set(re.findall(r"`([a-z0-9_]+)`", TEXT))


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_of_a_table_is_described(table: str) -> None:
    assert set(SCHEMAS[table].names) - NAMED == set()
    assert f"### {table}" in TEXT


def test_every_counter_is_described() -> None:
    assert {COUNTERS.field(i).name for i in range(COUNTERS.num_fields)} - NAMED == set()


def test_every_figure_of_a_report_s_row_is_described() -> None:
    row = row_dict(SITUATIONS["all_well"]().report().rows[0])
    assert set(row) - {"flags"} - NAMED == set()
    assert "## Flags" in TEXT
    assert set(row["stages_s_per_step"]) - NAMED == set()
    assert set(row["memory"]) - NAMED == set()
    assert set(row["times"]) - NAMED == set()


def test_every_figure_of_prefetch_is_described() -> None:
    rows = [row_dict(row) for row in SITUATIONS["prefetch"]().report().rows]
    shown = [row[f"{path}_prefetch"] for row in rows for path in ("greedy", "speculative")]
    assert [set(figures) for figures in shown if figures] == [PREFETCH_FIGURES] * 2
    assert PREFETCH_FIGURES <= NAMED


def test_every_check_and_flag_is_described() -> None:
    assert set(verdict.EXPECTED_CHECKS) - NAMED == set()
    source = Path(verdict.__file__).read_text(encoding="utf-8")
    flags = set(re.findall(r'Flag\(\s*name="([a-z_]+)"', source))
    assert len(flags) > 10
    assert flags - NAMED == set()


def test_every_eviction_policy_is_described_with_its_numbers() -> None:
    assert [name for name in get_args(Eviction) if f"| `{name}` |" not in TEXT] == []
    assert f"counts half after {HALF_LIFE_FORWARDS:.0f} forwards" in TEXT
    assert SMALL_RATIO == 0.1
    assert "a small queue (a tenth of the slots)" in TEXT
    assert f"up to {CALIBRATION_TOKENS} tokens of each of the task's prompts" in TEXT


def test_the_thresholds_in_the_text_are_the_program_s() -> None:
    assert f"fewer than {verdict.FEW_TOKENS} tokens" in TEXT
    assert f"more than {verdict.UNSTABLE_REPEATS_RATIO:.0%}".replace("%", " %") in TEXT
    assert f"more than {verdict.WIDE_INTERVAL_RATIO:.0%}".replace("%", " %") in TEXT
    assert f"above {verdict.HIGH_LOAD_PER_CORE} per core" in TEXT
    assert f"not at least {MIN_GAIN_RATIO:.0%}".replace("%", " %") + " faster" in TEXT
    assert verdict.FEW_REPEATS == 6
    assert "fewer than six samples" in TEXT


def test_the_rounds_of_the_costs_are_the_program_s() -> None:
    assert ROUNDS == 5
    assert "five times each after one round that is not counted" in TEXT


def test_a_name_in_a_table_s_first_cell_exists() -> None:
    known = set(verdict.EXPECTED_CHECKS) | {COUNTERS.field(i).name for i in range(COUNTERS.num_fields)}
    for schema in SCHEMAS.values():
        known |= set(schema.names)
    known |= set(row_dict(SITUATIONS["all_well"]().report().rows[0]))
    known |= set(re.findall(r'name="([a-z_]+)"', Path(verdict.__file__).read_text(encoding="utf-8")))
    known |= PREFETCH_FIGURES | set(verdict.SEVERITY) | set(get_args(Eviction))
    cells = re.findall(r"^\| (`[^|]*) \|", TEXT, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([a-z0-9_]+)`", cell)}
    assert named - known == set()


def test_every_link_within_the_text_has_its_heading() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([a-z0-9-]+)\)", TEXT)) - headings == set()
