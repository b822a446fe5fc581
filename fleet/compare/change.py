"""Did a machine become faster or slower from one night to the next? The intervals of two medians, held side by side.

The one idea: three answers are not enough. Two intervals that overlap may mean that nothing changed, or that the nights
were too unsteady to say; only narrow ones say `same`. A change below two per cent is none, however sharp the intervals
are: a handful of repeats is apart by chance once in ten nights, and a fleet has many rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.compare.row import Row
from fleet.compare.samples import SETTINGS
from fleet.compare.stats import NOT_MEASURED, Estimate
from worker.machine.comparability import COMPARABLE_FIELDS

MIN_CHANGE = 0.02
"""The least change of a median that is called one."""

SAME_WITHIN = 0.05
"""`same`: the whole range in which the ratio can lie is at most this far from 1."""

_OF_THE_PROGRAM = ("schema_version", "layout_version")
"""Settings that only a new build changes: they do not make another variant."""

Verdict = Literal["faster", "slower", "same", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A rate before and now. `ratio` is that of the medians; None where one was not measured."""

    before: Estimate
    now: Estimate
    ratio: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A row of this night beside the same variant of an earlier one.

    `is_new`: the earlier night has no such row. `differs`: what else changed, as (what, before, now).
    """

    row: Row
    greedy: Change
    speculative: Change
    is_new: bool
    differs: tuple[tuple[str, str, str], ...]


def change(before: Estimate, now: Estimate) -> Change:
    """Compare two medians by their intervals."""
    if not before.median or now.median is None:
        return Change(before=before, now=now, ratio=None, verdict="cannot tell")
    ratio = now.median / before.median
    return Change(before=before, now=now, ratio=ratio, verdict=_verdict(before, now, ratio))


def _verdict(before: Estimate, now: Estimate, ratio: float) -> Verdict:
    if before.low is None or before.high is None or now.low is None or now.high is None or before.low <= 0:
        return "cannot tell"
    low, high = now.low / before.high, now.high / before.low
    if low > 1 and ratio >= 1 + MIN_CHANGE:
        return "faster"
    if high < 1 and ratio <= 1 - MIN_CHANGE:
        return "slower"
    return "same" if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN else "cannot tell"


Variant = tuple[object, ...]


def variant_of(row: Row) -> Variant:
    """What names a row from night to night: the machine, the checkpoint and the settings, not the machine's state."""
    key = row.key
    settings = tuple((name, value) for name, value in key.shared if name in SETTINGS and name not in _OF_THE_PROGRAM)
    sizes = (key.verify_width, key.slots_per_layer, key.memory_budget_bytes)
    return (key.node, key.checkpoint, key.checkpoint_digest, key.synthetic, *sizes, settings)


def row_change(row: Row, earlier: Mapping[Variant, Row]) -> RowChange:
    """Set a row beside its variant of an earlier night; a row that may not be compared is never judged."""
    before = earlier.get(variant_of(row))
    return RowChange(
        row=row,
        greedy=change(_rate(before, "greedy"), _rate(row, "greedy")),
        speculative=change(_rate(before, "speculative"), _rate(row, "speculative")),
        is_new=before is None,
        differs=() if before is None else _differs(before, row),
    )


def _rate(row: Row | None, path: Literal["greedy", "speculative"]) -> Estimate:
    if row is None or not row.comparable:
        return NOT_MEASURED
    return (row.greedy if path == "greedy" else row.speculative).decode_tok_s


def _differs(before: Row, now: Row) -> tuple[tuple[str, str, str], ...]:
    """What else changed that may be the reason: the machine's state, the software, the build."""
    old, new = dict(before.key.shared), dict(now.key.shared)
    changed = [(name, str(old[name]), str(new[name])) for name in COMPARABLE_FIELDS if old[name] != new[name]]
    if before.build_hashes != now.build_hashes:
        changed.append(("build", ", ".join(before.build_hashes), ", ".join(now.build_hashes)))
    return tuple(changed)
