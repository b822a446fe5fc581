"""The table of prefetch: whether a row read ahead, what a trial said, and what reading ahead brought and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleet.compare.prefetch import PrefetchFigures, PrefetchTrial
from fleet.report.cells import (
    MS,
    NOTHING,
    Table,
    number,
    pair,
    percent,
    scaled,
    table,
    text,
    which,
    which_align,
    which_columns,
)
from fleet.report.hardware import ReportRow

_COLUMNS: tuple[Callable[[PrefetchFigures], str], ...] = (
    lambda figures: percent(figures.recall_ratio),
    lambda figures: percent(figures.useful_ratio),
    lambda figures: number(figures.late_per_token),
    lambda figures: scaled(figures.host_s_per_token, MS),
)


def prefetch_table(rows: Sequence[ReportRow]) -> Table:
    """What reading ahead brought and cost. Without lines when it was on, or tried, in none of the rows."""
    told = any(_prefetch(row) == "on" or row.figures.prefetch_trial for row in rows)
    return table(
        "Prefetch",
        "greedy / speculative; trial: without / with. recall: share of routed experts that was predicted; "
        "useful: share of the reads submitted that came in time and was used; late: used, and waited for; "
        "host: predicting, submitting and promoting.",
        (*which_columns(rows), "prefetch", "trial ms/token", "recall", "useful", "late/token", "host ms/token"),
        which_align(rows) + "lrrrrr",
        [
            (
                *which(row, rows),
                text(_prefetch(row) or NOTHING),
                text(_trial(row.figures.prefetch_trial)),
                *(text(_both(row, write)) for write in _COLUMNS),
            )
            for row in rows
            if told
        ],
    )


def _prefetch(row: ReportRow) -> str | None:
    return row.figures.first_run.prefetch


def _trial(trial: PrefetchTrial | None) -> str:
    return NOTHING if trial is None else pair(scaled(trial.off_s, MS), scaled(trial.on_s, MS))


def _both(row: ReportRow, write: Callable[[PrefetchFigures], str]) -> str:
    paths = (row.figures.greedy.prefetch, row.figures.speculative.prefetch)
    greedy, speculative = (NOTHING if figures is None else write(figures) for figures in paths)
    return pair(greedy, speculative)
