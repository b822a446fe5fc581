"""The mornings that a summary must get right. One golden text and page each; `python -m tests.golden.mornings` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from rich.console import Console

from fleet.report.hardware import HardwareReport, hardware_report
from fleet.report.morning import JobFact, MorningReport, NightFacts, morning_report
from fleet.report.morning_page import morning_html, print_morning
from tests.golden.study_tables import M2, M4_MAX, PromptSpec, RunSpec, study_tables

GOLDEN = Path(__file__).parent / "morning"
BEGAN = datetime(2026, 3, 1, 22, 0, tzinfo=UTC).timestamp()
ENDED = datetime(2026, 3, 2, 7, 30, tzinfo=UTC).timestamp()

STEADY = PromptSpec(greedy_s=(4.8, 4.81, 4.79), speculative_s=(3.2, 3.21, 3.19))
SLOWED = PromptSpec(greedy_s=(4.8, 4.8, 4.8), speculative_s=(3.6, 3.61, 3.59))
FASTER = PromptSpec(greedy_s=(4.8, 4.81, 4.79), speculative_s=(3.0, 3.01, 2.99))
UNSTEADY = PromptSpec(greedy_s=(4.0, 4.8, 5.9), speculative_s=(2.6, 3.2, 4.2))
NEWER = {**M4_MAX, "os_version": "26.4", "os_build": "25E201"}


def report_of(*specs: RunSpec, warnings: Sequence[str] = ()) -> HardwareReport:
    return hardware_report(study_tables(*specs), study="overnight", warnings=warnings)


def row(node: str = "studio-1", width: int = 3, prompt: PromptSpec = STEADY, **more) -> RunSpec:
    machine = M2 if node == "mini-2" else M4_MAX
    return RunSpec(node=node, verify_width=width, prompts=(prompt,), **{"machine": machine, **more})


def facts(before: str | None = "2026-02-28", *, ended: bool = True) -> NightFacts:
    return NightFacts(
        schedule="overnight",
        night="2026-03-01",
        study="overnight-5e1f0a2b-2",
        began_s=BEGAN,
        ended_s=ENDED if ended else None,
        before_night=before,
    )


def done(machine: str, *widths: int) -> list[JobFact]:
    return [JobFact(label=f"width {width}, slots 32", machine=machine, end="done") for width in widths]


BEFORE = (row(width=2), row(), row("mini-2"))


def all_well() -> MorningReport:
    jobs = [*done("studio-1", 2, 3), *done("mini-2", 3)]
    return morning_report(facts(), jobs, report_of(row(width=2), row(prompt=FASTER), row("mini-2")), report_of(*BEFORE))


def slower() -> MorningReport:
    now = (row(width=2), row(prompt=SLOWED, machine=NEWER), row("mini-2", prompt=UNSTEADY))
    return morning_report(facts(), [*done("studio-1", 2, 3), *done("mini-2", 3)], report_of(*now), report_of(*BEFORE))


def machine_lost() -> MorningReport:
    reason = "no sign of life from its node for 45 s"
    lost = [JobFact(label=f"width {width}, slots 32", machine="mini-2", end="lost", reason=reason) for width in (3, 4)]
    jobs = [*done("studio-1", 2, 3), *lost]
    return morning_report(facts(), jobs, report_of(row(width=2), row()), report_of(*BEFORE))


def too_short() -> MorningReport:
    reason = "it takes about 1 h 10 min, and 40 min 00 s of the window are left"
    waiting = [JobFact(label="width 4, slots 32", machine="mini-2", end="postponed", reason=reason)]
    old = [
        JobFact(
            label="width 5, slots 32", machine="mini-2", end="cancelled", reason="the night was too short", carried=True
        )
    ]
    jobs = [*done("studio-1", 2, 3), *done("mini-2", 3), *old, *waiting]
    return morning_report(facts(), jobs, report_of(row(width=2), row(), row("mini-2")), report_of(*BEFORE))


def first_night() -> MorningReport:
    jobs = [
        *done("studio-1", 2),
        JobFact(label="width 3, slots 32", machine="studio-1", end="running"),
        JobFact(label="width 4, slots 32", machine="studio-1", end="waiting"),
    ]
    return morning_report(facts(None, ended=False), jobs, report_of(row(width=2)), None)


def nothing_measured() -> MorningReport:
    failed = JobFact(label="width 3, slots 32", machine=None, end="failed", reason="<b>[red]layer 3</b>\n\x1b[31mgone")
    return morning_report(facts(), [failed], None, report_of(*BEFORE))


MORNINGS: dict[str, Callable[[], MorningReport]] = {
    made.__name__: made for made in (all_well, slower, machine_lost, too_short, first_night, nothing_measured)
}


def as_text(report: MorningReport) -> str:
    out = StringIO()
    print_morning(report, Console(file=out, width=160), zone=UTC)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def as_page(report: MorningReport) -> str:
    return morning_html(report, zone=UTC)


def update() -> None:
    """Overwrite every golden file."""
    GOLDEN.mkdir(exist_ok=True)
    for name, made in MORNINGS.items():
        (GOLDEN / f"{name}.txt").write_text(as_text(made()), encoding="utf-8")
        (GOLDEN / f"{name}.html").write_text(as_page(made()), encoding="utf-8")


if __name__ == "__main__":
    update()
