"""The verdict, with hand-made logits for every class."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from worker.benchmark.checks import mtp_attachment, width_logits
from worker.benchmark.exactness import WidthControl, compare, compare_widths, judge, spacing

LOGITS = [np.array([0.0, 4.0, 3.0, 1.0], dtype=np.float32)] * 3
GREEDY = (1, 1, 1)
CONTROL = WidthControl(
    num_positions=3,
    num_differing=3,
    num_argmax_differing=0,
    num_not_finite=0,
    diff_max=0.8,
    diff_p99=0.7,
    gap_shift_max=1.0,
)


def _judge(speculative, *, dtype="float32", control=None, strict=False, logits=LOGITS):
    return judge(
        GREEDY,
        speculative,
        width_one_logits=logits,
        logits_dtype=dtype,
        control=control,
        widths_are_bit_equal=strict,
    )


def test_the_same_ids_are_identical():
    found = _judge((1, 1, 1))
    assert (found.verdict, found.gap, found.difference.num_mismatches) == ("identical", None, 0)


def test_a_difference_of_one_quantum_between_the_best_two_is_a_tie():
    near = [np.array([0.0, 4.0, 4.0 - 2.0**-5, 1.0], dtype=np.float32)] * 3
    found = _judge((1, 2, 1), dtype="bfloat16", logits=near)
    assert (found.verdict, found.difference.first, found.quantum) == ("tie", 1, 2.0**-5)


def test_a_gap_within_the_measured_shift_is_drift():
    assert _judge((1, 2, 1), control=CONTROL).verdict == "drift"
    assert _judge((1, 3, 1), control=CONTROL).verdict == "wrong"


def test_without_an_excuse_it_is_wrong():
    found = _judge((1, 2, 1))
    assert (found.verdict, found.gap, found.difference.num_mismatches) == ("wrong", 1.0, 1)


def test_on_a_bit_equal_backend_there_is_no_excuse():
    near = [np.array([0.0, 4.0, 4.0, 1.0], dtype=np.float32)] * 3
    assert _judge((1, 2, 1), strict=True, logits=near, control=CONTROL).verdict == "wrong"


def test_a_missing_token_is_a_difference_that_nothing_explains():
    found = _judge((1, 1), control=CONTROL)
    assert (found.verdict, found.difference.first, found.difference.num_mismatches) == ("wrong", 2, 1)


def test_without_evidence_at_the_place_it_is_wrong():
    assert _judge((1, 2, 1), control=CONTROL, logits=()).verdict == "wrong"


def test_compare_counts_positions_and_length():
    assert compare([1, 2, 3], [1, 9, 3, 4, 5]).num_mismatches == 3
    assert compare([1, 2, 3], [1, 9, 3]).first == 1
    assert compare([], []).first is None


def test_width_control_by_hand():
    control = compare_widths(
        [np.array([1.0, 2.0], dtype=np.float32), np.array([5.0, 0.0], dtype=np.float32)],
        [np.array([1.0, 2.0], dtype=np.float32), np.array([4.5, 0.25], dtype=np.float32)],
    )
    assert control is not None
    assert (control.num_positions, control.num_differing, control.num_argmax_differing) == (2, 1, 0)
    assert (control.diff_max, control.gap_shift_max) == (0.5, 0.75)
    assert compare_widths([], []) is None


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(1.0, "float32", 2.0**-23), (5.0, "bfloat16", 2.0**-5), (-5.0, "float16", 2.0**-8), (1024.0, "float16", 1.0)],
)
def test_spacing_is_one_quantum(value: float, dtype: str, expected: float):
    assert spacing(value, dtype) == expected
    if dtype != "bfloat16":
        assert spacing(value, dtype) == abs(np.spacing(np.dtype(dtype).type(value)))


@pytest.mark.parametrize(("strict", "failed"), [(True, 3), (False, 0)])
def test_widths_may_differ_only_where_the_backend_does_not_promise_otherwise(strict: bool, failed: int):
    assert width_logits(CONTROL, widths_are_bit_equal=strict).num_failed == failed
    assert width_logits(None, widths_are_bit_equal=strict).num_run == 0


def test_a_logit_that_is_no_number_fails_anywhere():
    rows = [np.array([1.0, np.nan], dtype=np.float32)]
    control = compare_widths([np.array([1.0, 2.0], dtype=np.float32)], rows)
    assert width_logits(control, widths_are_bit_equal=False).num_failed == 1


def test_a_head_whose_first_drafts_are_never_right_fails_as_a_whole():
    def records(right: list[bool | None]):
        steps = [SimpleNamespace(is_first_right=r) for r in right]
        return [SimpleNamespace(steps=steps)]

    assert mtp_attachment(records([False] * 30)).num_failed == 30  # type: ignore[arg-type]
    assert mtp_attachment(records([False] * 28 + [True] * 2)).num_failed == 0  # type: ignore[arg-type]
    assert mtp_attachment(records([False] * 30 + [None] * 9)).num_run == 30  # type: ignore[arg-type]
    few = mtp_attachment(records([False] * 5))  # type: ignore[arg-type]
    assert (few.num_run, few.num_failed) == (5, 0)


def test_logits_that_are_no_numbers_are_wrong_even_with_equal_ids():
    broken = [np.full(4, np.nan, dtype=np.float32)] * 3
    assert _judge((1, 1, 1), logits=broken).verdict == "wrong"
    assert _judge((1, 1, 1), control=replace(CONTROL, num_not_finite=1)).verdict == "wrong"
