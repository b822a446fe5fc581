"""The exactness verdict: is the speculative sequence the greedy one, and if not, why may it differ?

identical   same ids, same length
tie         the first difference is between the two best candidates, closer than one quantum of the logits' dtype
drift       their gap is within what a change of forward width was measured to shift gaps here
wrong       anything else; on a backend whose forwards are bit-equal at every width, anything but identical;
            anywhere, logits that are not finite numbers, whatever the ids
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["identical", "tie", "drift", "wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How two sequences differ. `first` is the first index that differs, counting a missing token as a difference."""

    num_mismatches: int
    first: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthControl:
    """Width-w against width-1 logits on the same teacher-forced ids.

    `gap_shift_max` is the largest change of a gap between any two candidates at any position: the spread of the
    difference over the vocabulary. Units: logits.
    """

    num_positions: int
    num_differing: int
    num_argmax_differing: int
    num_not_finite: int
    diff_max: float
    diff_p99: float
    gap_shift_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """The verdict with its evidence. `gap` and `quantum` are null while there is no difference to explain."""

    verdict: Verdict
    difference: Difference
    gap: float | None
    quantum: float | None


def compare(greedy_ids: Sequence[int], speculative_ids: Sequence[int]) -> Difference:
    """Count the positions that differ, missing ones included."""
    shared = min(len(greedy_ids), len(speculative_ids))
    differing = [i for i in range(shared) if greedy_ids[i] != speculative_ids[i]]
    missing = abs(len(greedy_ids) - len(speculative_ids))
    first = differing[0] if differing else (shared if missing else None)
    return Difference(num_mismatches=len(differing) + missing, first=first)


def judge(
    greedy_ids: Sequence[int],
    speculative_ids: Sequence[int],
    *,
    width_one_logits: Sequence[NDArray[np.float32]],
    logits_dtype: str,
    control: WidthControl | None,
    widths_are_bit_equal: bool,
) -> Exactness:
    """Decide the verdict.

    Shapes: `width_one_logits[i]` [vocabulary] is what greedy decoding chose token i from; it may be shorter than the
    sequences, and a difference beyond it cannot be explained.
    """
    difference = compare(greedy_ids, speculative_ids)
    at = difference.first
    if not all(np.isfinite(row).all() for row in width_one_logits) or (control and control.num_not_finite):
        # Logits that are no numbers have no best token: both paths then emit the same nonsense.
        return Exactness(verdict="wrong", difference=difference, gap=None, quantum=None)
    if at is None:
        return Exactness(verdict="identical", difference=difference, gap=None, quantum=None)
    if at >= min(len(greedy_ids), len(speculative_ids), len(width_one_logits)):
        return Exactness(verdict="wrong", difference=difference, gap=None, quantum=None)
    logits = width_one_logits[at]
    ours, other = greedy_ids[at], speculative_ids[at]
    gap = float(logits[ours]) - float(logits[other])
    quantum = spacing(float(logits[ours]), logits_dtype)
    best_two = {int(i) for i in np.argpartition(logits, -2)[-2:]}
    verdict: Verdict = "wrong"
    if not widths_are_bit_equal:
        if {ours, other} == best_two and gap <= quantum:
            verdict = "tie"
        elif control is not None and gap <= control.gap_shift_max:
            verdict = "drift"
    return Exactness(verdict=verdict, difference=difference, gap=gap, quantum=quantum)


def compare_widths(
    width_one: Sequence[NDArray[np.float32]], width_w: Sequence[NDArray[np.float32]]
) -> WidthControl | None:
    """Summarise the differences position by position; None when there is nothing to compare."""
    pairs = list(zip(width_one, width_w, strict=False))
    if not pairs:
        return None
    differences = np.stack([b.astype(np.float64) - a for a, b in pairs])
    absolute = np.abs(differences)
    return WidthControl(
        num_positions=len(pairs),
        num_differing=int((absolute.max(axis=1) > 0).sum()),
        num_argmax_differing=sum(int(a.argmax() != b.argmax()) for a, b in pairs),
        num_not_finite=int((~np.isfinite(differences)).any(axis=1).sum()),
        diff_max=float(absolute.max()),
        diff_p99=float(np.percentile(absolute, 99)),
        gap_shift_max=float((differences.max(axis=1) - differences.min(axis=1)).max()),
    )


_MANTISSA_BITS = {"float32": 23, "float16": 10, "bfloat16": 7}


def spacing(value: float, dtype: str) -> float:
    """The distance from `value` to the next number of this dtype: one quantum."""
    exponent = np.frexp(abs(value))[1] - 1 if value else -126
    return float(2.0 ** (int(exponent) - _MANTISSA_BITS[dtype]))
