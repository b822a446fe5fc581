"""What reading ahead brought, what it cost, and what it wasted. Pure functions of repeats and runs; null in, null out.

Formulas are written out in worker/METHODOLOGY.md; the names here are the names there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.compare.records import Repeat, Run
from fleet.compare.relative import per_token, ratio, total


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchFigures:
    """One path's measured repeats with prefetch on.

    What was submitted ended as a hit, late, evicted unused, or cancelled before its read began. What was dropped was
    wanted and never submitted; what was unpredicted missed without a word from prefetch.
    """

    submitted_per_token: float | None
    hits_per_token: float | None
    late_per_token: float | None
    evicted_per_token: float | None
    cancelled_per_token: float | None
    dropped_per_token: float | None
    unpredicted_per_token: float | None
    useful_ratio: float | None
    recall_ratio: float | None
    window_mean_s: float | None
    host_s_per_token: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchTrial:
    """Seconds per token without and with prefetch in the trial that decided, and what it decided."""

    off_s: float
    on_s: float
    kept: bool


def prefetch_figures(repeats: Sequence[Repeat]) -> PrefetchFigures:
    """Sum up what prefetch did for one path."""
    return PrefetchFigures(
        submitted_per_token=per_token(repeats, "num_prefetch_submitted"),
        hits_per_token=per_token(repeats, "num_prefetch_hits"),
        late_per_token=per_token(repeats, "num_misses_predicted_late"),
        evicted_per_token=per_token(repeats, "num_prefetch_evicted"),
        cancelled_per_token=per_token(repeats, "num_prefetch_cancelled"),
        dropped_per_token=per_token(repeats, "num_prefetch_dropped"),
        unpredicted_per_token=per_token(repeats, "num_misses_unpredicted"),
        useful_ratio=ratio(total(repeats, "num_prefetch_hits"), total(repeats, "num_prefetch_submitted")),
        recall_ratio=_weighted_mean((r.predict_recall_ratio, r.num_predictions) for r in repeats),
        window_mean_s=_weighted_mean((r.prefetch_window_mean_s, r.prefetch_window_n) for r in repeats),
        host_s_per_token=_host_s_per_token(repeats),
    )


def read_bytes_s(repeats: Iterable[Repeat]) -> float | None:
    """Bytes read per second in which at least one read was outstanding, over whole repeats. None when nothing was."""
    known = [
        (r.reader_bytes, r.reader_active_s)
        for r in repeats
        if r.reader_bytes is not None and r.reader_active_s is not None
    ]
    return ratio(sum(size for size, _ in known), sum(seconds for _, seconds in known))


def prefetch_trial(runs: Iterable[Run]) -> PrefetchTrial | None:
    """The first of a row's runs whose task left the choice to a trial tells how that went."""
    for run in runs:
        if run.prefetch_trial_off_s is not None and run.prefetch_trial_on_s is not None:
            return PrefetchTrial(
                off_s=run.prefetch_trial_off_s, on_s=run.prefetch_trial_on_s, kept=run.prefetch == "on"
            )
    return None


def _host_s_per_token(repeats: Iterable[Repeat]) -> float | None:
    seconds, tokens = 0.0, 0
    for r in repeats:
        if r.predict_host_s is not None and r.submit_host_s is not None and r.promote_host_s is not None:
            seconds += r.predict_host_s + r.submit_host_s + r.promote_host_s
            tokens += (r.num_tokens or 1) - 1
    return ratio(seconds, tokens)


def _weighted_mean(values: Iterable[tuple[float | None, int | None]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight is not None]
    return ratio(sum(value * weight for value, weight in known), sum(weight for _, weight in known))
