"""The morning summary in words and tables, the same for the terminal and the page."""

from __future__ import annotations

from datetime import datetime, tzinfo

from fleet.compare.change import Change
from fleet.report.cells import NOTHING, Cell, Table, Tone, exactness_cell, interval, label, table, text
from fleet.report.morning import ANY_MACHINE, ENDS, ChangeLine, JobEnd, MorningReport
from fleet.spans import span

_END_TONE: dict[JobEnd, Tone] = {"failed": "bad", "lost": "bad", "cancelled": "warn", "postponed": "warn"}
_VERDICT_TONE: dict[str, Tone] = {"faster": "good", "slower": "bad", "cannot tell": "muted"}


def title(report: MorningReport) -> str:
    return f"{report.facts.schedule}, night of {report.facts.night}"


def when(report: MorningReport, zone: tzinfo | None = None) -> str:
    """When the night was, in a zone or on this machine's clock, and what it is compared with."""
    facts = report.facts
    began = datetime.fromtimestamp(facts.began_s, zone).strftime("%Y-%m-%d %H:%M")
    if facts.ended_s is None:
        lasted = "still going on"
    else:
        until = datetime.fromtimestamp(facts.ended_s, zone).strftime("%H:%M")
        lasted = f"to {until} ({span(facts.ended_s - facts.began_s)})"
    beside = f"compared with the night of {facts.before_night}" if facts.before_night else "nothing to compare with yet"
    return f"{began} {lasted}; study {facts.study}; {beside}"


def headline(report: MorningReport) -> Cell:
    """Answer in one sentence whether the night went well."""
    num_jobs, done = len(report.jobs), report.count("done")
    if not num_jobs:
        return text("Nothing was to run.", "warn")
    head = f"All {num_jobs} jobs ran" if done == num_jobs else f"{done} of {num_jobs} jobs ran"
    others = [f"{count} {_end_words(end)}" for end in _END_TONE if (count := report.count(end))]
    if running := report.count("running"):
        others.append(f"{running} still running")
    if waiting := report.count("waiting"):
        others.append(f"{waiting} waiting")
    changed = [f"{n} {verdict}" for verdict in ("slower", "faster") if (n := report.num_changed(verdict))]
    wrong = sum(line.row.figures.exactness == "wrong" for line in report.changes)
    parts = [head, ", ".join(others), _of_rows(changed, len(report.changes)), f"{wrong} wrong" if wrong else ""]
    bad = wrong or report.count("failed") or report.count("lost") or report.num_changed("slower")
    tone: Tone = "bad" if bad else "warn" if done < num_jobs else "good"
    return text("; ".join(part for part in parts if part) + ".", tone)


def _end_words(end: JobEnd) -> str:
    return "to go on in the next night" if end == "postponed" else end


def _of_rows(changed: list[str], num_rows: int) -> str:
    return f"of {num_rows} row{'' if num_rows == 1 else 's'}, {' and '.join(changed)}" if changed else ""


def tables(report: MorningReport) -> tuple[Table, ...]:
    """Every table that has something to show."""
    made = (machines_table(report), open_table(report), changes_table(report))
    return tuple(table for table in made if table.rows)


def machines_table(report: MorningReport) -> Table:
    """One line per machine: how many of its jobs ended how."""
    shown: list[JobEnd] = [end for end in ENDS if end != "done" and report.count(end)]
    return table(
        "Machines",
        "",
        ("machine", "done", *shown),
        "l" + "r" * (1 + len(shown)),
        [
            (
                text(machine.name),
                text(str(machine.count("done"))),
                *(_count_cell(machine.count(end), end) for end in shown),
            )
            for machine in report.machines
        ],
    )


def _count_cell(count: int, end: JobEnd) -> Cell:
    return text(str(count), _END_TONE.get(end, "plain")) if count else text(NOTHING, "muted")


def open_table(report: MorningReport) -> Table:
    """What did not run, and why."""
    jobs = [job for job in report.jobs if job.end in _END_TONE]
    return table(
        "Not run",
        "",
        ("machine", "job", "what became of it", "why"),
        "llll",
        [
            (
                text(job.machine or ANY_MACHINE),
                text(job.label + (" (of an earlier night)" if job.carried else "")),
                text(job.end, _END_TONE.get(job.end, "plain")),
                text(job.reason or "no reason is recorded"),
            )
            for job in jobs
        ],
    )


def changes_table(report: MorningReport) -> Table:
    """What was measured, beside the night before."""
    noted = any(line.change.differs for line in report.changes)
    return table(
        "Speed",
        "Decoded tokens per second: median [95 % interval]. A change below 2 % is none.",
        ("machine", "row", "greedy", "change", "speculative", "change", "tokens", *(["also changed"] if noted else [])),
        "llrlrll" + "l" * noted,
        [_change_cells(line, noted=noted, first=report.facts.before_night is None) for line in report.changes],
    )


def _change_cells(line: ChangeLine, *, noted: bool, first: bool) -> tuple[Cell, ...]:
    figures, moved = line.row.figures, line.change
    return (
        text(line.row.machine),
        text(label(line.row)),
        text(interval(figures.greedy.decode_tok_s)),
        _change_cell(moved.greedy, is_new=moved.is_new, first=first),
        text(interval(figures.speculative.decode_tok_s)),
        _change_cell(moved.speculative, is_new=moved.is_new, first=first),
        exactness_cell(figures.exactness),
        *([_differs_cell(line)] if noted else []),
    )


def _change_cell(change: Change, *, is_new: bool, first: bool) -> Cell:
    if first or is_new:
        return text("first night" if first else "new", "muted")
    if change.ratio is None:
        return text(change.verdict, "muted")
    moved = round((change.ratio - 1) * 100, 1) + 0.0  # never -0.0
    return text(f"{moved:+.1f} % {change.verdict}", _VERDICT_TONE.get(change.verdict, "plain"))


def _differs_cell(line: ChangeLine) -> Cell:
    words = [f"{what}: {before} to {now}" for what, before, now in line.change.differs]
    return text("; ".join(words) or NOTHING, "warn" if words else "muted")
