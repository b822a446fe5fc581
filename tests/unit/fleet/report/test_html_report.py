"""The page is one file: well formed, silent, offline, and safe with any name; in a real browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fleet.report import html
from fleet.report.hardware import HardwareReport, hardware_report
from tests.golden.situations import PROMPTS, SITUATIONS
from tests.golden.study_tables import M2, RunSpec, study_tables

ATTACK = "<script>alert(1)</script>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "link", "br", "img", "hr", "input"}
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed on this machine")


class Outline(HTMLParser):
    """Collects what a test asks about a page, and fails on tags that do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.headings: list[int] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()
        self.language: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        if tag == "html":
            self.language = values.get("lang")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.addresses += [
            values[name] or "" for name in ("src", "href", "xlink:href", "action", "data") if name in values
        ]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, tag
        assert self.stack.pop() == tag, self.getpos()


def attacked() -> HardwareReport:
    return hardware_report(
        study_tables(RunSpec(prompts=PROMPTS), RunSpec(node=ATTACK, machine={**M2, "chip": ATTACK}, prompts=PROMPTS)),
        study=f"night {ATTACK}",
        warnings=[ATTACK],
    )


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert not parser.stack
    return parser


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_every_situation_is_one_well_formed_page_that_loads_nothing(name: str) -> None:
    page = html.render(SITUATIONS[name]().report())
    found = outline(page)
    assert found.language == "en"
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in zip(found.headings, found.headings[1:], strict=False))
    assert all(address.startswith("data:") for address in found.addresses)
    assert not found.tags & {"script", "iframe", "object", "embed", "img", "base", "form"}
    assert not re.search(r"https?:|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page


def test_an_attack_in_a_name_is_text_everywhere() -> None:
    page = html.render(attacked())
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6
    assert "script" not in outline(page).tags


def test_a_synthetic_page_says_so_in_title_and_heading() -> None:
    page = html.render(SITUATIONS["only_synthetic"]().report())
    assert "<title>SYNTHETIC: " in page
    assert "<h1>SYNTHETIC: " in page


def test_charts_hold_both_paths_and_leave_wrong_rows_out() -> None:
    page = html.render(SITUATIONS["wrong"]().report())
    charts = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "width 2, 32 slots" in charts
    assert "width 3, 32 slots" not in charts
    assert page.count("<svg") == 2


def test_the_same_report_gives_the_same_page() -> None:
    assert html.render(SITUATIONS["tie"]().report()) == html.render(SITUATIONS["tie"]().report())


def chromium(tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            # The browser's own errands (time, accounts) end here too: nothing leaves this machine.
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@needs_chromium
def test_a_browser_shows_the_attack_as_text_without_a_console_message(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.render(attacked()), encoding="utf-8")
    done = chromium(tmp_path, "--enable-logging=stderr", "--dump-dom", page.as_uri())
    assert "CONSOLE" not in done.stderr
    dom = outline(done.stdout)
    assert "script" not in dom.tags
    assert "svg" in dom.tags
    assert "<h2>&lt;script&gt;alert(1)&lt;/script&gt;</h2>" in done.stdout


def requests_of(page: Path, tmp_path: Path) -> set[str]:
    """The addresses that the page itself asked the network for, out of the browser's own log.

    The browser's own errands have no initiator; a page's requests have one.
    """
    log = tmp_path / "net.json"
    chromium(tmp_path, f"--log-net-log={log}", "--dump-dom", page.as_uri())
    text = log.read_text(encoding="utf-8").rstrip()
    events = json.loads(text if text.endswith("}") else text.rstrip(",") + "]}")["events"]
    params = [event.get("params", {}) for event in events]
    return {p["url"] for p in params if "url" in p and p.get("initiator", "not an origin") != "not an origin"}


@needs_chromium
def test_a_browser_fetches_nothing_but_the_file(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.render(attacked()), encoding="utf-8")
    assert requests_of(page, tmp_path) == set()


@needs_chromium
def test_the_browser_s_log_would_show_a_request(tmp_path: Path) -> None:
    page = tmp_path / "control.html"
    page.write_text('<!doctype html><img src="http://tracker.invalid/x.png">', encoding="utf-8")
    assert requests_of(page, tmp_path) == {"http://tracker.invalid/x.png"}


@needs_chromium
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_a_browser_draws_the_page_in_both_schemes(tmp_path: Path, scheme: int) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.render(SITUATIONS["all_well"]().report()), encoding="utf-8")
    picture = tmp_path / "page.png"
    chromium(
        tmp_path,
        f"--blink-settings=preferredColorScheme={scheme}",
        "--window-size=1200,900",
        f"--screenshot={picture}",
        page.as_uri(),
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
