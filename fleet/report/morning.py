"""The morning summary as data: what ran in a night, what did not and why, and what changed against the night before.

In: the night's jobs in the words of the ledger, and the reports of this night's edition and of an earlier one. Out: frozen
values that the terminal and the page draw. Nothing is rounded here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.compare.change import RowChange, row_change, variant_of
from fleet.report.hardware import HardwareReport, ReportRow

JobEnd = Literal["done", "failed", "lost", "cancelled", "postponed", "running", "waiting"]
"""`lost`: nobody could say how its last attempt ended. `postponed`: it waits for another night; `waiting`: in this one."""

ENDS: tuple[JobEnd, ...] = ("done", "failed", "lost", "cancelled", "postponed", "running", "waiting")
ANY_MACHINE = "(any machine)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFact:
    """One job of the night. `carried`: it belongs to the edition of an earlier night."""

    label: str
    machine: str | None
    end: JobEnd
    reason: str = ""
    carried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NightFacts:
    """Which night is told, and which one before it is compared with. Units: seconds since 1970."""

    schedule: str
    night: str
    study: str
    began_s: float
    ended_s: float | None
    before_night: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNight:
    """One machine's jobs, counted by how they ended."""

    name: str
    counts: tuple[tuple[JobEnd, int], ...]

    def count(self, end: JobEnd) -> int:
        return dict(self.counts).get(end, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """A row of this night, under the name that its report gives it, and what became of its rates."""

    row: ReportRow
    change: RowChange


@dataclass(frozen=True, slots=True, kw_only=True)
class MorningReport:
    """Everything a renderer needs."""

    facts: NightFacts
    jobs: tuple[JobFact, ...]
    machines: tuple[MachineNight, ...]
    changes: tuple[ChangeLine, ...]
    warnings: tuple[str, ...]

    def count(self, end: JobEnd) -> int:
        return sum(job.end == end for job in self.jobs)

    def num_changed(self, verdict: str) -> int:
        """The rows of which a path is faster, or slower."""
        return sum(verdict in (line.change.greedy.verdict, line.change.speculative.verdict) for line in self.changes)


def morning_report(
    facts: NightFacts,
    jobs: Sequence[JobFact],
    now: HardwareReport | None,
    before: HardwareReport | None,
) -> MorningReport:
    """Sum a night up. `now` and `before` are None when nothing was measured."""
    earlier = {variant_of(row.figures): row.figures for row in before.rows} if before else {}
    changes = [ChangeLine(row=row, change=row_change(row.figures, earlier)) for row in now.rows] if now else []
    return MorningReport(
        facts=facts,
        jobs=tuple(jobs),
        machines=_machines(jobs),
        changes=tuple(changes),
        warnings=(*(now.warnings if now else ()), *_missing(changes, len(earlier))),
    )


def _machines(jobs: Sequence[JobFact]) -> tuple[MachineNight, ...]:
    counts = {name: Counter[JobEnd]() for name in sorted(_machine(job) for job in jobs)}
    for job in jobs:
        counts[_machine(job)][job.end] += 1
    return tuple(
        MachineNight(name=name, counts=tuple((end, own[end]) for end in ENDS if own[end]))
        for name, own in counts.items()
    )


def _machine(job: JobFact) -> str:
    return job.machine or ANY_MACHINE


def _missing(changes: Sequence[ChangeLine], num_earlier: int) -> list[str]:
    missing = num_earlier - sum(not line.change.is_new for line in changes)
    if missing <= 0:
        return []
    rows = "1 row" if missing == 1 else f"{missing} rows"
    return [f"{rows} of the earlier night {'has' if missing == 1 else 'have'} no counterpart in this one"]
