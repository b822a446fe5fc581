"""`fleet demo` fails on what is wrong or missing, not on what a GPU may do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleet.cli.demo import _raise_for_differences
from fleet.errors import TasksFailedError


def _report(*verdicts: str | None) -> Any:
    return SimpleNamespace(rows=[SimpleNamespace(figures=SimpleNamespace(exactness=verdict)) for verdict in verdicts])


def _state(num_tasks: int) -> Any:
    return SimpleNamespace(jobs=dict.fromkeys(range(num_tasks)))


def test_identical_ties_and_drift_pass():
    _raise_for_differences(_report("identical", "tie", "drift"), _state(3))


@pytest.mark.parametrize("verdict", ["wrong", None])
def test_wrong_and_unjudged_rows_fail(verdict: str | None):
    with pytest.raises(TasksFailedError, match="1 of 2 rows are wrong, or were not judged"):
        _raise_for_differences(_report("identical", verdict), _state(2))


def test_a_task_without_a_row_fails():
    with pytest.raises(TasksFailedError, match="1 rows for 2 tasks"):
        _raise_for_differences(_report("identical"), _state(2))
