"""Labels name what varies."""

from __future__ import annotations

from dataclasses import replace

from fleet.cli.text import task_label
from worker.contract.task import CheckpointRef, Prompt, Task

PROMPTS = (Prompt(id="p", category="c", text="t"),)


def test_a_label_names_what_usually_varies_and_what_differs_from_the_default():
    task = Task(checkpoint=CheckpointRef(source="demo"), prompts=PROMPTS)
    assert task_label(task) == "width 3, slots all"
    task = Task(
        checkpoint=CheckpointRef(source="demo"),
        prompts=PROMPTS,
        verify_width=2,
        slots_per_layer=16,
        verify_mode="stepwise",
        rollback="replay",
    )
    assert task_label(task) == "width 2, slots 16, stepwise, replay"
    task = Task(
        checkpoint=CheckpointRef(source="demo"),
        prompts=PROMPTS,
        memory_budget_bytes=2**33,
        eviction="lfuda",
        allocation="uniform",
    )
    assert task_label(task) == "width 3, budget 8589934592 bytes, lfuda, uniform"


def test_a_label_names_a_draft_policy_that_is_not_the_default():
    checkpoint = CheckpointRef(source="demo")
    gated = Task(checkpoint=checkpoint, prompts=PROMPTS, draft_policy="gated", draft_confidence=0.5)
    assert task_label(gated) == "width 3, slots all, drafts gated 0.5"
    assert task_label(replace(gated, draft_policy="off")) == "width 3, slots all, drafts off"
