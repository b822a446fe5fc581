"""Where the store keeps things: a directory per attempt, a Parquet file per table, the version in the path.

    DATA/store/v1/study=STUDY/task=TASK/attempt=ATTEMPT/TABLE.parquet

Readable as it stands by anything that knows Parquet, e.g. DuckDB's `read_parquet('DATA/store/v1/**/runs.parquet')`.
"""

from __future__ import annotations

from pathlib import Path

from fleet.study.study import StudyId
from worker.contract.task import TaskId

LAYOUT_VERSION = 1


def study_folder(store: Path, study_id: StudyId) -> Path:
    return store / f"v{LAYOUT_VERSION}" / f"study={study_id}"


def attempt_folder(store: Path, study_id: StudyId, task_id: TaskId, attempt_id: str) -> Path:
    return study_folder(store, study_id) / f"task={task_id}" / f"attempt={attempt_id}"


def attempt_of(folder: Path) -> str:
    return folder.name.removeprefix("attempt=")


def table_file(folder: Path, table: str) -> Path:
    return folder / f"{table}.parquet"
