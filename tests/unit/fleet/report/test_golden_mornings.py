"""Each morning renders to its golden text and page; `python -m tests.golden.mornings` writes them after a meant change."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from fleet.report.morning import MorningReport, morning_report
from tests.golden.mornings import GOLDEN, MORNINGS, STEADY, as_page, as_text, done, facts, report_of, row


@pytest.mark.parametrize("name", MORNINGS)
def test_the_text_is_as_recorded(name: str) -> None:
    assert as_text(MORNINGS[name]()) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MORNINGS)
def test_the_page_is_as_recorded(name: str) -> None:
    assert as_page(MORNINGS[name]()) == (GOLDEN / f"{name}.html").read_text(encoding="utf-8")


def test_every_golden_morning_belongs_to_a_situation() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(MORNINGS)


@pytest.mark.parametrize("name", MORNINGS)
def test_the_page_needs_nothing_else_and_its_tags_nest(name: str) -> None:
    page = as_page(MORNINGS[name]())
    assert not re.search(r"https?://|<script|@import|url\(", page)
    assert page.startswith("<!doctype html>")
    stack: list[str] = []

    class Nesting(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "link"):
                stack.append(tag)

        def handle_endtag(self, tag):
            assert stack.pop() == tag

    Nesting().feed(page)
    assert stack == []


def test_what_comes_from_outside_is_text_and_never_markup() -> None:
    page, text = as_page(MORNINGS["nothing_measured"]()), as_text(MORNINGS["nothing_measured"]())
    assert "<b>" not in page
    assert "<b>[red]layer 3</b>" in text
    assert "\x1b" not in page + text


@pytest.mark.parametrize(
    ("name", "tone"),
    [
        ("all_well", "good"),
        ("slower", "bad"),
        ("machine_lost", "bad"),
        ("too_short", "warn"),
        ("first_night", "warn"),
        ("nothing_measured", "bad"),
    ],
)
def test_the_first_line_says_whether_to_read_on(name: str, tone: str) -> None:
    assert f'<p class="verdict {tone}">' in as_page(MORNINGS[name]())


def test_a_wrong_row_is_told_first_and_never_judged() -> None:
    wrong = dataclasses.replace(STEADY, exactness="wrong", num_mismatches=60)
    report = morning_report(facts(), done("studio-1", 3), report_of(row(prompt=wrong)), report_of(row()))
    assert [line.change.speculative.verdict for line in report.changes] == ["cannot tell"]
    assert "1 wrong" in as_text(report).splitlines()[1]
    assert '<p class="verdict bad">' in as_page(report)


def test_a_variant_that_the_earlier_night_lacks_is_new() -> None:
    report = morning_report(facts(), done("studio-1", 4), report_of(row(width=4)), report_of(row(width=2)))
    assert report.changes[0].change.is_new
    assert "  new  " in as_text(report)
    assert report.warnings == ("1 row of the earlier night has no counterpart in this one",)


def test_a_change_too_small_to_write_has_no_sign_of_a_loss() -> None:
    hardly = dataclasses.replace(STEADY, greedy_s=(4.801, 4.811, 4.791))
    report = morning_report(facts(), done("studio-1", 3), report_of(row(prompt=hardly)), report_of(row()))
    assert "+0.0 % same" in as_text(report)
    assert "-0.0" not in as_text(report)


def test_a_night_without_a_job_says_so() -> None:
    empty: MorningReport = morning_report(facts(), [], None, None)
    assert as_text(empty).splitlines()[1] == "Nothing was to run."
