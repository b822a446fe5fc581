"""The store of raw rows: append the tables of one attempt, all of them visible at once or not at all; scan a study.

Writing is idempotent by attempt, so that a result which arrives twice is kept once.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fleet.errors import StorageError
from fleet.store.layout import attempt_folder, attempt_of, study_folder, table_file
from fleet.study.study import StudyId
from worker.contract.private import own_directory, owner_only
from worker.contract.schema import SCHEMAS
from worker.contract.task import TaskId

FULL_DISK = "free some space and submit the study again: what is done stays done"


def check_tables(tables: Mapping[str, pa.Table], *, study_id: StudyId, task_id: TaskId, attempt_id: str) -> None:
    """Refuse tables that differ from this build's schemas or that speak of another attempt.

    Raises: ValueError naming the table and what is wrong with it.
    """
    if missing := sorted(set(SCHEMAS) - set(tables)):
        raise ValueError(f"the table {missing[0]!r} is missing")
    for name, table in tables.items():
        if name not in SCHEMAS:
            raise ValueError(f"the table {name!r} is unknown to this build")
        if not table.schema.equals(SCHEMAS[name]):
            raise ValueError(f"the schema of {name!r} differs from this build's")
        for column, expected in (("study_id", study_id), ("task_id", task_id), ("attempt_id", attempt_id)):
            found = set(table.column(column).unique().to_pylist()) - {expected}
            if found:
                raise ValueError(f"{name}.{column} is {found.pop()!r}, expected {expected!r}")
    if tables["runs"].num_rows == 0:
        raise ValueError("the table 'runs' is empty")


class RunStore:
    """Owns one store directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> None:
        """Make the directory and prove that it can be written.

        Raises: StorageError, so that nothing is measured which could not be kept.
        """
        probe = self.directory / f".probe.{os.getpid()}"
        try:
            own_directory(self.directory)
            with open(probe, "wb", opener=owner_only) as handle:
                handle.write(b"\0" * 4096)
                os.fsync(handle.fileno())
        except OSError as error:
            raise _storage_error(self.directory, error) from error
        finally:
            _remove_quietly(probe)

    def holds(self, study_id: StudyId, task_id: TaskId, attempt_id: str) -> bool:
        return attempt_folder(self.directory, study_id, task_id, attempt_id).is_dir()

    def count_rows(self, study_id: StudyId, task_id: TaskId, attempt_id: str) -> dict[str, int]:
        """The number of rows per table of a stored attempt, read from the files' own metadata."""
        folder = attempt_folder(self.directory, study_id, task_id, attempt_id)
        return {
            name: pq.read_metadata(path).num_rows for name in SCHEMAS if (path := table_file(folder, name)).exists()
        }

    def append(self, tables: Mapping[str, pa.Table], *, study_id: StudyId, task_id: TaskId, attempt_id: str) -> Path:
        """Store the tables of one attempt under their final name, after they have reached the disk.

        Raises: ValueError for tables of another schema or attempt; StorageError, and then nothing of them is visible.
        """
        check_tables(tables, study_id=study_id, task_id=task_id, attempt_id=attempt_id)
        final = attempt_folder(self.directory, study_id, task_id, attempt_id)
        if final.is_dir():
            return final
        part = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            shutil.rmtree(part, ignore_errors=True)
            own_directory(part)
            for name, table in tables.items():
                _write_table(table, table_file(part, name))
            _sync_directory(part)
            part.rename(final)
            _sync_directory(final.parent)
        except BaseException as error:
            shutil.rmtree(part, ignore_errors=True)
            if isinstance(error, OSError | pa.ArrowException):
                raise _storage_error(self.directory, error) from error
            raise
        return final

    def scan(self, study_id: StudyId, attempts: Collection[str] | None = None) -> dict[str, pa.Table]:
        """Every table of a study, concatenated; only of the given attempts when they are named.

        Raises: StorageError naming the file that cannot be read.
        """
        folders = [
            folder
            for folder in sorted(study_folder(self.directory, study_id).glob("task=*/attempt=*"))
            if attempts is None or attempt_of(folder) in attempts
        ]
        return {
            name: pa.concat_tables([_read_table(table_file(folder, name), schema) for folder in folders])
            if folders
            else schema.empty_table()
            for name, schema in SCHEMAS.items()
        }


def _write_table(table: pa.Table, path: Path) -> None:
    with open(path, "wb", opener=owner_only) as handle:
        pq.write_table(table, handle, compression="zstd")
        handle.flush()
        os.fsync(handle.fileno())


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        # One file at a time: a partitioned read would turn the directory names into extra columns.
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"{path}: cannot be read: {error}", "restore it, or run the study again with --again"
        ) from error
    if table.schema.names != schema.names:
        raise StorageError(f"{path}: its columns differ from this build's", "read it with the build that wrote it")
    return table.cast(schema)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_quietly(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        return


def _storage_error(directory: Path, error: BaseException) -> StorageError:
    code = getattr(error, "errno", None)
    reason = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
    full = code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return StorageError(
        f"{directory}: cannot be written: {reason}",
        FULL_DISK if full else "check its permissions, or choose another directory with --data",
    )
