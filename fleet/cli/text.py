"""Words for what the commands print: a task by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.contract.task import Task


def task_label(task: Task) -> str:
    """A task by what usually varies, then by what differs from the default."""
    slots = "all" if task.slots_per_layer is None else task.slots_per_layer
    pool = f"slots {slots}" if task.memory_budget_bytes is None else f"budget {task.memory_budget_bytes} bytes"
    words = [f"width {task.verify_width}", pool]
    words += [value for value, usual in ((task.verify_mode, "batched"), (task.rollback, "capture")) if value != usual]
    if task.eviction != "lru":
        words.append(task.eviction)
    if task.allocation != "auto":
        words.append(task.allocation)
    if task.draft_policy != "fixed":
        confidence = f" {task.draft_confidence}" if task.draft_policy == "gated" else ""
        words.append(f"drafts {task.draft_policy}{confidence}")
    return ", ".join(words)
