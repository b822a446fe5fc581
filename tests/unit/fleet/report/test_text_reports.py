from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from fleet.compare.stats import Estimate
from fleet.report import html, markdown, terminal
from fleet.report.cells import fastest, interval, label, number, percent, printable, size, times_interval
from fleet.report.hardware import HardwareReport, hardware_report
from fleet.report.tables import sections
from tests.golden.situations import PROMPTS, SITUATIONS
from tests.golden.study_tables import PromptSpec, RunSpec, study_tables

HOSTILE = ("[red]x[/red]", "a|b", "<b>&amp;", "`code`", "\x1b[31mred", "line\nbreak", "x](http://e.example)", "*")


def terminal_text(report: HardwareReport, *, width: int = 100, colour: bool = False) -> str:
    out = io.StringIO()
    terminal.render(
        report, Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None)
    )
    return out.getvalue()


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_every_situation_fits_a_hundred_columns(name: str) -> None:
    text = terminal_text(SITUATIONS[name]().report())
    assert max(len(line) for line in text.splitlines()) <= 100


def test_no_speed_is_broken_over_two_lines_at_a_hundred_columns() -> None:
    text = terminal_text(SITUATIONS["all_well"]().report())
    assert "20.0 [20.0, 20.4]" in text
    assert "30.0 [26.7, 38.4]" in text
    assert "1.50x [1.31, 1.92]" in text


def test_no_figure_of_the_experts_is_broken_over_two_lines_at_a_hundred_columns() -> None:
    small = {"reader_bytes": 12_300_000, "reader_active_s": 0.1, "peak_bytes": 11 * 2**20}
    tables = study_tables(RunSpec(prompts=PROMPTS, verify_width=2, repeat_columns=small), RunSpec(prompts=PROMPTS))
    text = terminal_text(hardware_report(tables, study="s"))
    for figures in ("37.5 % / 20.0 %", "20.0 / 24.0", "0.123 / 0.123", "4.00 / 4.00", "11.0 MiB"):
        assert figures in text


def test_a_pipe_gets_unbroken_figures_and_a_narrow_terminal_its_own_width() -> None:
    piped = terminal_text(SITUATIONS["all_well"]().report(), width=80)
    assert "1.50x [1.31, 1.92]" in piped
    narrow = terminal_text(SITUATIONS["all_well"]().report(), width=80, colour=True)
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in narrow.splitlines()) <= 80


def test_the_first_lines_say_whether_to_trust_the_report() -> None:
    assert "Trustworthy. 4 rows: 4 identical" in terminal_text(SITUATIONS["all_well"]().report()).splitlines()[1]
    assert "Not trustworthy" in terminal_text(SITUATIONS["wrong"]().report()).splitlines()[1]
    assert "SYNTHETIC" in terminal_text(SITUATIONS["only_synthetic"]().report()).splitlines()[1]
    assert "Nothing was measured" in terminal_text(SITUATIONS["empty_store"]().report()).splitlines()[1]


def test_the_predicted_speedup_stands_beside_the_measured_one_in_every_format() -> None:
    report = SITUATIONS["one_repeat"]().report()
    figures = "50.0 52.0 55.0 60.0 70.0"
    for shown in (terminal_text(report), markdown.render(report), re.sub(r"<[^>]*>", " ", html.render(report))):
        line = shown[shown.index(figures) :]
        assert re.findall(r"[0-9.]+x?", line)[5:9] == ["3.00", "2.00", "1.67x", "1.50x"]


def test_prefetch_is_shown_in_every_format_where_it_was_on_or_tried() -> None:
    report = SITUATIONS["prefetch"]().report()
    on = ["50.0", "42.0", "75.0", "62.5", "62.5", "60.0", "2.00", "2.00", "1.50", "1.50"]
    for shown in (terminal_text(report), markdown.render(report), re.sub(r"<[^>]*>", " ", html.render(report))):
        assert shown.count("Prefetch") == 2
        lost, kept = (shown[match.end() :] for match in re.finditer(r"host ms/token.*?3 +\|? *32", shown, re.DOTALL))
        assert [re.findall("on|off", row)[0] for row in (lost, kept)] == ["off", "on"]
        assert re.findall("[0-9.]+", lost)[:2] == ["50.0", "52.5"]
        assert re.findall("[0-9.]+", kept)[: len(on)] == on


def test_prefetch_is_not_shown_where_no_row_had_it() -> None:
    for prefetch in (None, "off"):
        report = hardware_report(study_tables(RunSpec(prompts=PROMPTS, prefetch=prefetch)), study="s")
        for shown in (terminal_text(report), markdown.render(report), html.render(report)):
            assert "Prefetch" not in shown


def test_a_row_without_prefetch_stands_beside_one_that_had_it() -> None:
    specs = (RunSpec(prompts=PROMPTS, prefetch=prefetch, task_id=prefetch) for prefetch in ("on", "off"))
    report = hardware_report(study_tables(*specs), study="s")
    (shown,) = [table for table in sections(report, "studio-1") if table.title == "Prefetch"]
    cells = [[cell.text for cell in row] for row in shown.rows]
    assert [row[3:] for row in cells] == [
        ["off", "-", "-", "-", "-", "-"],
        ["on", "-", "75.0 % / 62.5 %", "62.5 % / 60.0 %", "2.00 / 2.00", "1.50 / 1.50"],
    ]


def test_the_reading_speed_stands_in_the_table_of_hit_ratios() -> None:
    report = hardware_report(
        study_tables(
            RunSpec(prompts=PROMPTS, repeat_columns={"reader_bytes": 5 * 10**9, "reader_active_s": 2.0}),
        ),
        study="s",
    )
    (experts,) = [table for table in sections(report, "studio-1") if table.title == "Experts and memory"]
    assert experts.rows[0][experts.columns.index("GB/s")].text == "2.50 / 2.50"
    assert "page_cache" in experts.note


def test_a_wrong_verdict_is_red_on_a_terminal() -> None:
    assert "\x1b[1;31mwrong" in terminal_text(SITUATIONS["wrong"]().report(), colour=True)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_a_terminal(name: str) -> None:
    report = hardware_report(study_tables(RunSpec(node=name)), study=name)
    text = terminal_text(report, colour=True)
    assert printable(name) in text
    assert "\x1b[31mred" not in text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_in_markdown(name: str) -> None:
    text = markdown.render(hardware_report(study_tables(RunSpec(node=name)), study=name, warnings=[name]))
    assert "<b" not in text
    assert "\x1b" not in text
    assert "](http" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    header = next(line for line in tables if "| machine |" in line)
    row = tables[tables.index(header) + 2]
    assert row.replace("\\|", "").count("|") == header.count("|")


def test_flags_that_differ_in_their_numbers_only_are_told_once() -> None:
    report = hardware_report(
        study_tables(
            *(
                RunSpec(slots_per_layer=slots, prompts=PROMPTS, repeat_columns={"load_average_before": load})
                for slots, load in ((16, 30.5), (32, 41.25), (64, 1.0))
            )
        ),
        study="s",
    )
    (flags,) = [table for table in sections(report, "studio-1") if table.title == "Flags"]
    warnings = [[cell.text for cell in row] for row in flags.rows if row[0].text == "warning"]
    assert warnings == [
        [
            "warning",
            "width 3, 16 slots; width 3, 32 slots",
            "load average 30.5 on 16 cores before a repeat; stop other work on the machine (and 1 like it)",
        ]
    ]


def test_a_row_under_a_memory_budget_is_named_by_it() -> None:
    columns: dict[str, int | None] = {"slots_per_layer": None, "memory_budget_bytes": 12 * 2**30}
    report = hardware_report(study_tables(RunSpec(columns=columns, prompts=PROMPTS)), study="s")
    assert label(report.rows[0]) == "width 3, 12.0 GiB budget"
    (speed, *_) = sections(report, "studio-1")
    assert speed.rows[0][speed.columns.index("slots")].text == "12.0 GiB"


def test_a_wrong_row_is_never_a_machine_s_fastest() -> None:
    fast_and_wrong = PromptSpec(speculative_s=(1.0, 1.0, 1.0), exactness="wrong", num_mismatches=9)
    report = hardware_report(
        study_tables(RunSpec(prompts=(fast_and_wrong,)), RunSpec(verify_width=2, prompts=PROMPTS)), study="s"
    )
    best = fastest(report.rows)
    assert best is not None
    assert best.figures.key.verify_width == 2


def test_tables_without_rows_are_not_shown() -> None:
    report = hardware_report(study_tables(RunSpec(prompts=PROMPTS, checks={})), study="s")
    assert "Checks" not in {table.title for table in sections(report, "studio-1")}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.0012, "0.00120"),
        (0.0004, "4.00e-04"),
        (0.05, "0.0500"),
        (1.5, "1.50"),
        (20.46, "20.5"),
        (123.4, "123"),
        (12345.6, "12346"),
        (-1.5, "-1.50"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_numbers_keep_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_share_just_below_one_is_not_shown_as_all() -> None:
    assert [percent(value) for value in (None, 0.0, 0.375, 0.99999, 1.0)] == ["-", "0.0 %", "37.5 %", "99.9 %", "100 %"]


def test_sizes_are_in_mib_below_a_gib() -> None:
    assert [size(value) for value in (None, 0, 2**20, 2**30 - 2**20, 2**30, 45 * 2**30)] == [
        "-",
        "0 MiB",
        "1.00 MiB",
        "1023 MiB",
        "1.00 GiB",
        "45.0 GiB",
    ]


def test_an_estimate_without_interval_shows_its_median_alone() -> None:
    assert interval(Estimate(median=20.0, low=None, high=None, n=1)) == "20.0"
    assert times_interval(Estimate(median=0.5, low=None, high=None, n=1)) == "0.50x"
    assert times_interval(Estimate(median=0.852, low=0.795, high=0.858, n=3)) == "0.85x [0.80, 0.86]"
