"""Medians and their intervals, for a handful of samples in groups.

A row of the report holds several repeats of several prompts. Repeats of one prompt resemble each other, so the interval
comes from a percentile bootstrap in two stages: prompts are drawn with replacement, then repeats within each of them.
With one prompt this is the ordinary percentile bootstrap (`scipy.stats.bootstrap` agrees, see the tests; it can't draw
in two stages, which is why it is not used). The random numbers are seeded: the same rows give the same interval.

A percentile interval never leaves the range of the samples. For a single prompt with n repeats that range covers the
true median with a probability of 1 - 2^(1-n) at most: 75 % for three repeats, 94 % for five, 97 % for six.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
NUM_RESAMPLES = 4000
SEED = 20261201

Groups = Sequence[Sequence[float]]
"""One sequence of samples per prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A median, its 95 % interval, and the number of samples. Without two samples there is no interval."""

    median: float | None
    low: float | None
    high: float | None
    n: int


NOT_MEASURED = Estimate(median=None, low=None, high=None, n=0)


def estimate(groups: Groups) -> Estimate:
    """Estimate the median over all samples of all groups."""
    groups = [group for group in groups if len(group)]
    n = sum(len(group) for group in groups)
    if n == 0:
        return NOT_MEASURED
    median = float(np.median(np.concatenate([np.asarray(group, dtype=float) for group in groups])))
    if n == 1:
        return Estimate(median=median, low=None, high=None, n=1)
    low, high = _interval(_resampled_medians(groups, _draws(groups)))
    return Estimate(median=median, low=low, high=high, n=n)


def estimate_ratio(numerators: Groups, denominators: Groups) -> Estimate:
    """Estimate the ratio of two medians whose groups belong together, one pair of groups per prompt.

    The resampling is paired: both sides draw the same prompts and, within a prompt, the same repeats, so that a drift
    of the machine that moves both paths cancels. `n` is the number of pairs. A prompt that lacks one side is left out.
    """
    pairs = [(top, bottom) for top, bottom in zip(numerators, denominators, strict=True) if len(top) and len(bottom)]
    n = sum(min(len(top), len(bottom)) for top, bottom in pairs)
    if n == 0:
        return NOT_MEASURED
    tops, bottoms = [top for top, _ in pairs], [bottom for _, bottom in pairs]
    bottom_median = float(np.median(np.concatenate(bottoms)))
    if bottom_median <= 0:
        return NOT_MEASURED
    ratio = float(np.median(np.concatenate(tops))) / bottom_median
    if n == 1:
        return Estimate(median=ratio, low=None, high=None, n=1)
    draws = _draws([*tops, *bottoms], num_groups=len(pairs))
    low, high = _interval(_resampled_medians(tops, draws) / _resampled_medians(bottoms, draws))
    return Estimate(median=ratio, low=low, high=high, n=n)


@dataclass(frozen=True, slots=True)
class _Draws:
    """Shapes: `groups` (resamples, groups) indices; `within` (resamples, groups, largest group) numbers in [0, 1)."""

    groups: NDArray[np.intp]
    within: NDArray[np.float64]


def _draws(groups: Groups, *, num_groups: int | None = None) -> _Draws:
    count = len(groups) if num_groups is None else num_groups
    random = np.random.default_rng(SEED)
    picked = np.floor(random.random((NUM_RESAMPLES, count)) * count).astype(np.intp)
    largest = max(len(group) for group in groups)
    return _Draws(picked, random.random((NUM_RESAMPLES, count, largest)))


def _resampled_medians(groups: Groups, draws: _Draws) -> NDArray[np.float64]:
    """The median of each resample. Groups of unequal size keep their own size when they are drawn."""
    sizes = np.array([len(group) for group in groups])
    width = draws.within.shape[2]
    padded = np.full((len(groups), width), np.nan)
    for row, group in zip(padded, groups, strict=True):
        row[: len(group)] = group
    drawn_sizes = sizes[draws.groups][..., None]
    within = np.floor(draws.within * drawn_sizes).astype(np.intp)
    values = padded[draws.groups[..., None], within]
    unused = np.arange(width) >= drawn_sizes
    flat = np.where(unused, np.nan, values).reshape(len(values), -1)
    return np.nanmedian(flat, axis=1) if unused.any() else np.median(flat, axis=1)


def _interval(medians: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return float(low), float(high)
