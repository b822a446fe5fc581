"""Every study that is shipped can be read, and the demo is the one that the documentation describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import UsageError
from fleet.study.bundled import bundled_folder, find_study
from fleet.study.load import load_study

STUDIES = sorted((bundled_folder() / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_it_loads_and_is_named_after_its_file(path: Path):
    study = load_study(path)
    assert study.name == path.stem
    assert study.description
    assert len({task.id for task in study.tasks}) == len(study.tasks)


def test_the_demo_varies_two_widths_and_three_pools_over_three_kinds_of_text():
    study = load_study(find_study("demo"))
    assert {(task.verify_width, task.slots_per_layer) for task in study.tasks} == {
        (width, slots) for width in (2, 3) for slots in (64, 32, 16)
    }
    assert len({prompt.category for prompt in study.tasks[0].prompts}) == 3
    assert study.tasks[0].checkpoint.source == "demo"


def test_a_name_that_is_not_bundled_is_answered_with_those_that_are(tmp_path):
    with pytest.raises(UsageError, match=r"no study 'dmeo'.*demo"):
        find_study("dmeo")
    with pytest.raises(UsageError, match="missing"):
        find_study(str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match="a directory"):
        find_study(str(tmp_path))
