from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.contract.errors import MachineBusyError, StorageError
from worker.machine.awake import awake, command
from worker.machine.lock import holder_pid, machine_lock

HOLDER = """
import sys
from pathlib import Path
from worker.machine.lock import machine_lock
with machine_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process_holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_benchmark_is_refused_and_told_who_holds_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "machine.lock"
    with other_process_holding(path) as holder:
        for _ in range(2):
            with (
                pytest.raises(MachineBusyError, match=rf"process {holder.pid} .*{path.name}; .*--lock"),
                machine_lock(path),
            ):
                pass


def test_the_lock_ends_with_a_holder_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "machine.lock"
    with other_process_holding(path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=30)
        assert holder_pid(path) is None
        with machine_lock(path):
            pass


def test_the_lock_is_free_again_after_an_error_inside(tmp_path: Path) -> None:
    path = tmp_path / "machine.lock"
    with pytest.raises(RuntimeError), machine_lock(path):
        raise RuntimeError
    with machine_lock(path):
        assert holder_pid(path)
    assert holder_pid(path) is None


def test_other_users_may_open_the_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.lock"
    with machine_lock(path):
        assert path.stat().st_mode & 0o666 == 0o666


def test_a_lock_file_that_can_not_be_opened_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match=r"cannot lock .*file/lock: .*--lock"),
        machine_lock(tmp_path / "file" / "lock"),
    ):
        pass


@pytest.mark.parametrize("content", ["", "x", "-1", "0", "99999999999999999999"])
def test_a_holder_file_without_a_living_process_names_nobody(tmp_path: Path, content: str) -> None:
    path = tmp_path / "machine.lock"
    (tmp_path / "machine.lock.pid").write_text(content)
    assert holder_pid(path) is None


def test_keeping_awake_runs_caffeinate_on_a_mac_only() -> None:
    assert command(42) == ("/usr/bin/caffeinate", "-dimsu", "-w", "42")
    with awake(system="Linux"):
        pass
    with awake(system="Darwin"):
        # Where caffeinate is missing the measurement goes on.
        pass
