"""Acceptance, by hand."""

from __future__ import annotations

import pytest

from worker.mtp.accept import num_accepted


@pytest.mark.parametrize(
    ("drafts", "targets", "expected"),
    [
        ([], [5], 0),
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([1, 2, 3], [9, 2, 3, 4], 0),
        ([1, 2, 3], [1, 2, 9, 4], 2),
    ],
)
def test_leading_equal_drafts_count(drafts, targets, expected):
    assert num_accepted(drafts, targets) == expected
