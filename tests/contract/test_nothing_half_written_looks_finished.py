"""The spool under a disk that stops taking bytes: the kernel's own file size limit stands in for a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.golden.study_tables import RunSpec, study_tables
from worker.contract.errors import StorageError
from worker.contract.outcome import Completed, Failed
from worker.contract.schema import SCHEMAS
from worker.contract.spool import (
    LOG_FILE,
    OUTCOME_FILE,
    PROGRESS_FILE,
    Progress,
    SpoolWriter,
    read_outcome,
    read_tables,
)

WRITE_UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from tests.golden.study_tables import PromptSpec, RunSpec, study_tables
from worker.contract.errors import StorageError
from worker.contract.spool import SpoolWriter

tables = study_tables(*(RunSpec(slots_per_layer=32 + i) for i in range(40)))
writer = SpoolWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    writer.complete(tables)
except StorageError as error:
    print(error)
"""


def files_below(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.is_file()}


def write_under_a_limit(directory: Path, limit_bytes: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNDER_A_LIMIT, str(directory), str(limit_bytes)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("limit_bytes", [1, 4096, 65536])
def test_a_table_that_did_not_fit_is_not_there_and_neither_is_an_outcome(tmp_path: Path, limit_bytes: int) -> None:
    spool = tmp_path / "spool"
    message = write_under_a_limit(spool, limit_bytes)
    assert message.startswith(f"cannot write to {spool}: ")
    assert message.count("\n") == 1
    assert "free some space" in message
    assert read_outcome(spool) is None
    assert not any(name.endswith(".tmp") for name in files_below(spool))
    for name in read_tables(spool):
        assert name in SCHEMAS


def test_without_a_limit_the_same_tables_arrive(tmp_path: Path) -> None:
    assert write_under_a_limit(tmp_path / "spool", 2**31) == ""
    assert isinstance(read_outcome(tmp_path / "spool"), Completed)


def test_tables_and_outcome_arrive_whole(tmp_path: Path) -> None:
    tables = study_tables(RunSpec())
    outcome = SpoolWriter(tmp_path).complete(tables)
    assert read_outcome(tmp_path) == outcome == Completed(tables={name: t.num_rows for name, t in tables.items()})
    read = read_tables(tmp_path)
    assert {name: table.to_pylist() for name, table in read.items()} == {
        name: table.to_pylist() for name, table in tables.items()
    }


def test_a_failure_is_an_outcome_too(tmp_path: Path) -> None:
    failed = Failed(kind="transient", error="MachineBusyError", message="busy", hint="wait")
    SpoolWriter(tmp_path).finish(failed)
    assert read_outcome(tmp_path) == failed
    assert read_tables(tmp_path) == {}


def test_progress_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    sent = [
        Progress(phase="load", fraction=0.1),
        Progress(phase="greedy", fraction=0.5, repeat=1, repeats=3, tok_s=12.5),
    ]
    for progress in sent:
        writer.progress(progress)
    lines = (tmp_path / PROGRESS_FILE).read_text(encoding="utf-8").splitlines()
    assert [Progress.from_json(line) for line in lines] == sent
    writer.finish(Completed(tables={}))


def test_a_place_where_no_directory_can_be_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to .*file/spool: .*; free some space or choose another"):
        SpoolWriter(tmp_path / "file" / "spool")


@pytest.mark.parametrize("content", ["{}", '{"outcome": "maybe"}', '{"outcome": "completed"}'])
def test_a_foreign_outcome_is_a_failure_that_names_the_file(tmp_path: Path, content: str) -> None:
    (tmp_path / OUTCOME_FILE).write_text(content, encoding="utf-8")
    outcome = read_outcome(tmp_path)
    assert isinstance(outcome, Failed)
    assert OUTCOME_FILE in outcome.message
    assert json.dumps(outcome.to_dict())


def test_a_table_of_another_build_is_refused_by_name(tmp_path: Path) -> None:
    SpoolWriter(tmp_path).complete(study_tables(RunSpec()))
    path = tmp_path / "tables" / "steps.arrow"
    other = pa.table({"study_id": ["x"]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, other.schema) as out:
        out.write_table(other)
    with pytest.raises(ValueError, match=r"steps.arrow: the schema of steps differs"):
        read_tables(tmp_path)
    assert LOG_FILE not in files_below(tmp_path)
