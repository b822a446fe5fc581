"""Changes from night to night with hand-computed intervals, and which rows belong together."""

from __future__ import annotations

import pytest

from fleet.compare.change import change, row_change, variant_of
from fleet.compare.stats import NOT_MEASURED, Estimate
from tests.golden.mornings import NEWER, report_of, row


def rate(median: float, low: float | None = None, high: float | None = None, n: int = 6) -> Estimate:
    return Estimate(median=median, low=low, high=high, n=n)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (rate(20, 19.9, 20.1), rate(21, 20.9, 21.1), "faster"),
        (rate(20, 19.9, 20.1), rate(19, 18.9, 19.1), "slower"),
        (rate(20, 19.9, 20.1), rate(20.1, 20.0, 20.2), "same"),
        (rate(20, 19.99, 20.01), rate(20.3, 20.29, 20.31), "same"),  # apart, by 1.5 % only
        (rate(20, 19.99, 20.01), rate(20.4, 20.39, 20.41), "faster"),  # the least change: 2 %
        (rate(20, 19.99, 20.01), rate(19.59, 19.58, 19.6), "slower"),
        (rate(20, 19.99, 20.01), rate(19.7, 19.69, 19.71), "same"),
        (rate(20, 0.0, 21), rate(25, 24, 26), "cannot tell"),
        (rate(20, 18, 22), rate(21, 19, 23), "cannot tell"),
        (rate(20, 18, 20.5), rate(23, 20.4, 24), "cannot tell"),  # they touch
        (rate(20, 19, 20), rate(20, 20, 21), "cannot tell"),
        (rate(20, 20, 20), rate(20, 19, 21), "same"),
        (rate(20, 20, 20), rate(20, 18.9, 21), "cannot tell"),
        (rate(20), rate(25, 24, 26), "cannot tell"),
        (rate(20, 19, 21), rate(25), "cannot tell"),
        (NOT_MEASURED, rate(25, 24, 26), "cannot tell"),
        (rate(20, 19, 21), NOT_MEASURED, "cannot tell"),
        (rate(0.0, 0.0, 0.0), rate(25, 24, 26), "cannot tell"),
    ],
)
def test_a_verdict_needs_intervals_that_say_it(before: Estimate, now: Estimate, verdict: str) -> None:
    assert change(before, now).verdict == verdict


def test_the_ratio_is_that_of_the_medians_and_none_without_both() -> None:
    assert change(rate(20, 19, 21), rate(25, 24, 26)).ratio == 1.25
    assert change(NOT_MEASURED, rate(25)).ratio is None
    assert change(rate(20), NOT_MEASURED).ratio is None
    assert change(rate(20), rate(25)).ratio == 1.25


def test_a_machine_that_was_updated_is_the_same_variant_and_the_update_is_named() -> None:
    (old,), (new,) = report_of(row()).rows, report_of(row(machine=NEWER, build_hash="d" * 16)).rows
    assert variant_of(old.figures) == variant_of(new.figures)
    found = row_change(new.figures, {variant_of(old.figures): old.figures})
    assert not found.is_new
    assert found.differs == (
        ("os_version", "26.3", "26.4"),
        ("os_build", "25D125", "25E201"),
        ("build", "b" * 16, "d" * 16),
    )


@pytest.mark.parametrize(
    "other",
    [
        row("mini-2"),
        row(width=2),
        row(slots_per_layer=16),
        row(columns={"rollback": "replay"}),
        row(columns={"max_tokens": 64}),
        row(columns={"checkpoint_digest": "d" * 16}),
        row(synthetic=True),
    ],
)
def test_another_machine_setting_or_checkpoint_is_another_variant(other) -> None:
    assert variant_of(report_of(row()).rows[0].figures) != variant_of(report_of(other).rows[0].figures)
