"""The same tasks have the same study id wherever the file lies; any edit that changes a task changes the id."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fleet.study.study import Study
from worker.contract.task import CheckpointRef, Prompt, Task

TASK = Task(checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="a", category="c", text="t"),))
STUDY = Study(name="s", description="d", tasks=(TASK,), path=Path("/a/s.toml"))


def test_file_and_description_are_no_part_of_the_identity():
    assert dataclasses.replace(STUDY, path=Path("/b/t.toml"), description="other").id == STUDY.id


def test_a_changed_or_added_task_or_another_name_is_another_study():
    wider = dataclasses.replace(TASK, verify_width=4)
    ids = {
        STUDY.id,
        dataclasses.replace(STUDY, tasks=(wider,)).id,
        dataclasses.replace(STUDY, tasks=(TASK, wider)).id,
        dataclasses.replace(STUDY, name="t").id,
    }
    assert len(ids) == 4


def test_another_edition_has_the_same_tasks_under_another_id():
    again = STUDY.in_edition(2)
    assert again.id == f"{STUDY.id}-2"
    assert again.tasks == STUDY.tasks
