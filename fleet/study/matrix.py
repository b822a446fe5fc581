"""The matrix: axes of settings in, one combination per task out.

The order is the plain cartesian product over the axes in the order of `AXES`, the last axis fastest, whatever the order
of the keys in the file. It only names the tasks in a stable way; the order in which they run is the schedule's.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

Axis = int | float | str | None

AXES = (
    "verify_mode",
    "rollback",
    "eviction",
    "allocation",
    "group_limit",
    "draft_policy",
    "draft_confidence",
    "page_cache",
    "prefetch",
    "verify_width",
    "memory_budget_bytes",
    "slots_per_layer",
)
"""Every setting of a task that a study may vary, slowest first."""


def combinations(axes: Mapping[str, Sequence[Axis]]) -> list[dict[str, Axis]]:
    """One mapping of settings per task. An axis that is not named keeps the task's default.

    Raises: KeyError for an axis that does not exist.
    """
    if unknown := sorted(set(axes) - set(AXES)):
        raise KeyError(unknown[0])
    names = [name for name in AXES if name in axes]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(axes[name] for name in names))]
