"""All tables of an attempt become visible together; a write that fails leaves nothing; a second write changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from fleet.errors import StorageError
from fleet.store.layout import attempt_folder
from fleet.store.runs import RunStore
from fleet.study.study import StudyId
from worker.contract.schema import SCHEMAS
from worker.contract.task import TaskId

S, T = StudyId("s-1"), TaskId("t1")


def tables(attempt: str, *, study: str = S, task: str = T, num_tokens: int = 3) -> dict[str, pa.Table]:
    key = {"study_id": study, "task_id": task, "attempt_id": attempt, "prompt_id": "p"}
    found = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
    found["runs"] = pa.Table.from_pylist([{**key, "synthetic": True}], schema=SCHEMAS["runs"])
    rows = [{**key, "path": "greedy", "token_index": i, "token_id": i} for i in range(num_tokens)]
    span = {**key, "path": "greedy", "name": "layer", "layer": 2, "thread": "MainThread", "start_s": 0.5, "end_s": 0.75}
    found["events"] = pa.Table.from_pylist([span], schema=SCHEMAS["events"])
    found["tokens"] = pa.Table.from_pylist(rows, schema=SCHEMAS["tokens"])
    return found


def put(store: RunStore, attempt: str, **changes) -> Path:
    return store.append(tables(attempt, **changes), study_id=S, task_id=T, attempt_id=attempt)


def test_what_goes_in_comes_out_with_its_schema_and_its_nulls(tmp_path):
    store = RunStore(tmp_path)
    put(store, "a")
    found = store.scan(S)
    assert {name: table.schema for name, table in found.items()} == SCHEMAS
    assert found["runs"].to_pylist() == tables("a")["runs"].to_pylist()
    assert found["events"].to_pylist() == tables("a")["events"].to_pylist()
    assert found["events"].column("expert").null_count == 1
    assert found["runs"].column("chip").null_count == 1
    assert store.count_rows(S, T, "a") == {name: table.num_rows for name, table in tables("a").items()}


def test_attempts_are_concatenated_and_can_be_chosen(tmp_path):
    store = RunStore(tmp_path)
    put(store, "a", num_tokens=3)
    put(store, "b", num_tokens=2)
    assert store.scan(S)["tokens"].num_rows == 5
    assert store.scan(S, ["b"])["tokens"].num_rows == 2
    assert store.scan(S, [])["tokens"].num_rows == 0
    assert store.scan(StudyId("other"))["runs"].num_rows == 0


def test_the_same_attempt_twice_is_kept_once(tmp_path):
    store = RunStore(tmp_path)
    assert not store.holds(S, T, "a")
    first = put(store, "a", num_tokens=3)
    assert put(store, "a", num_tokens=9) == first
    assert store.holds(S, T, "a")
    assert store.scan(S)["tokens"].num_rows == 3


def test_the_layout_is_readable_by_any_parquet_reader(tmp_path):
    import duckdb

    put(RunStore(tmp_path), "a")
    path = tmp_path / "v1" / "study=s-1" / "task=t1" / "attempt=a" / "tokens.parquet"
    assert path.is_file()
    with duckdb.connect() as db:
        counted = db.execute(f"SELECT count(*) FROM read_parquet('{tmp_path}/v1/**/tokens.parquet')").fetchall()
    assert counted == [(3,)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"study": "other"}, "runs.study_id is 'other'"),
        ({"task": "other"}, "runs.task_id is 'other'"),
    ],
)
def test_rows_of_another_study_or_task_are_refused(tmp_path, change, expected):
    with pytest.raises(ValueError, match=expected):
        put(RunStore(tmp_path), "a", **change)
    assert list(tmp_path.iterdir()) == []


def test_late_rows_of_another_attempt_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"runs\.attempt_id is 'old'"):
        RunStore(tmp_path).append(tables("old"), study_id=S, task_id=T, attempt_id="new")


def test_a_missing_foreign_or_empty_table_is_refused_by_name(tmp_path):
    store = RunStore(tmp_path)
    whole = tables("a")
    for broken, expected in (
        ({name: table for name, table in whole.items() if name != "steps"}, "'steps' is missing"),
        ({**whole, "extra": whole["runs"]}, "'extra' is unknown"),
        ({**whole, "checks": whole["steps"]}, "schema of 'checks' differs"),
        ({**whole, "runs": SCHEMAS["runs"].empty_table()}, "'runs' is empty"),
    ):
        with pytest.raises(ValueError, match=expected):
            store.append(broken, study_id=S, task_id=T, attempt_id="a")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_made_is_named_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/store: cannot be written.*--data") as caught:
        RunStore(tmp_path / "file" / "store").prepare()
    assert caught.value.exit_code == 2


def test_preparing_leaves_no_trace(tmp_path):
    RunStore(tmp_path / "store").prepare()
    assert list((tmp_path / "store").iterdir()) == []


def test_no_space_halfway_leaves_nothing_visible_and_says_what_to_do(tmp_path):
    """A file size limit stops the write in the middle, as a full disk does."""
    code = f"""
        import resource, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import test_an_attempt_is_stored_whole_or_not_at_all as here
        from fleet.errors import StorageError
        from fleet.store.runs import RunStore
        rows = here.tables("a", num_tokens=50_000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            RunStore(here.Path({str(tmp_path)!r})).append(rows, study_id=here.S, task_id=here.T, attempt_id="a")
        except StorageError as error:
            sys.exit(f"{{error}}")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=False, capture_output=True, text=True, timeout=60
    )
    assert "cannot be written" in ended.stderr
    assert "free some space and submit the study again" in ended.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not attempt_folder(tmp_path, S, T, "a").exists()


def test_a_leftover_of_a_killed_writer_is_never_read(tmp_path):
    store = RunStore(tmp_path)
    folder = put(store, "a")
    folder.rename(folder.with_name(".attempt=b.99999.tmp"))
    assert store.scan(S)["runs"].num_rows == 0


def test_a_damaged_file_is_named(tmp_path):
    store = RunStore(tmp_path)
    (put(store, "a") / "tokens.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(StorageError, match=r"tokens\.parquet: cannot be read"):
        store.scan(S)
