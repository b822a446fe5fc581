"""With the widest umask there is, nobody but the owner can read or write what the fleet keeps; a shared place is named."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from fleet.cluster.live import LiveFile
from fleet.cluster.token import keep_token
from fleet.ledger.events import MachinePaused
from fleet.ledger.sqlite import Ledger, driving
from fleet.nodes.node import NodeName
from fleet.store.runs import RunStore
from fleet.study.study import StudyId
from worker.contract.private import own_directory, write_own
from worker.contract.schema import SCHEMAS
from worker.contract.spool import SpoolWriter
from worker.contract.task import TaskId


@pytest.fixture(autouse=True)
def _widest_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def the_ledger(data: Path) -> None:
    with driving(data), Ledger(data) as ledger:
        ledger.append(MachinePaused(machine=NodeName("a"), reason="in use"))
        assert_owned(data)  # while SQLite's own files are there


def the_store(data: Path) -> None:
    key = {"study_id": "s-1", "task_id": "t", "attempt_id": "a", "prompt_id": "p"}
    tables = {name: schema.empty_table() for name, schema in SCHEMAS.items()}
    tables["runs"] = pa.Table.from_pylist([key], schema=SCHEMAS["runs"])
    store = RunStore(data / "store")
    store.prepare()
    store.append(tables, study_id=StudyId("s-1"), task_id=TaskId("t"), attempt_id="a")


def the_spool(data: Path) -> None:
    SpoolWriter(data / "spool" / "a").complete({name: schema.empty_table() for name, schema in SCHEMAS.items()})


def the_live_state(data: Path) -> None:
    LiveFile(own_directory(data), serves=True).tell(list, {})


def the_token(data: Path) -> None:
    keep_token(own_directory(data) / "token")


def a_log(data: Path) -> None:
    write_own(own_directory(data / "logs") / "a.log", "text")


@pytest.mark.parametrize("keep", [the_ledger, the_store, the_spool, the_live_state, the_token, a_log])
def test_directories_are_0700_and_files_0600(tmp_path: Path, keep: Callable[[Path], None]):
    keep(tmp_path / "above" / "data")
    assert assert_owned(tmp_path / "above") >= 2


def assert_owned(top: Path) -> int:
    """How many files and directories there are; each is its owner's alone."""
    found = [top, *top.rglob("*")]
    modes = {str(path): oct(stat.S_IMODE(path.stat().st_mode)) for path in found}
    expected = {str(path): "0o700" if path.is_dir() else "0o600" for path in found}
    assert modes == expected
    return len(found)


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path):
    (tmp_path / "lab").mkdir(mode=0o775)
    with Ledger(tmp_path / "lab"):
        pass
    assert stat.S_IMODE((tmp_path / "lab").stat().st_mode) == 0o775


@pytest.mark.parametrize(("mode", "told"), [(0o775, 1), (0o757, 1), (0o755, 0), (0o700, 0)])
def test_a_data_directory_that_others_may_write_is_told_once_and_used(tmp_path: Path, mode: int, told: int):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    command = [sys.executable, "-m", "fleet.cli.main", "machines", "list", "--json", "--data", data]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("warning: ")]
    assert len(lines) == told
    assert all(f"{data}: others may write there (mode {mode:o})" in line for line in lines)
