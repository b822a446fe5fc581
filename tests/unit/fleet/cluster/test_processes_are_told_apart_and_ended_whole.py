"""A process is found again for sure, and ended with its session and with what left that session; no other is touched."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from fleet.cluster.processes import ProcessId, end, family, session_of

SLEEP = "import time; time.sleep(600)"
MIDDLE = f"""
import subprocess, sys
far = subprocess.Popen([sys.executable, "-c", "{SLEEP}"], start_new_session=True)
open(sys.argv[1] + "/far", "w").write(str(far.pid))
far.wait()
"""
TREE = f"""
import subprocess, sys
near = subprocess.Popen([sys.executable, "-c", "{SLEEP}"])
between = subprocess.Popen([sys.executable, "-c", {MIDDLE!r}, sys.argv[1]])
open(sys.argv[1] + "/near", "w").write(f"{{near.pid}} {{between.pid}}")
near.wait()
"""


@pytest.fixture
def tree(tmp_path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A session of three processes, and one more below it in a session of its own."""
    process = subprocess.Popen([sys.executable, "-c", TREE, str(tmp_path)], start_new_session=True)
    while not all((tmp_path / name).is_file() and (tmp_path / name).read_text() for name in ("near", "far")):
        assert process.poll() is None
        time.sleep(0.02)
    pids = [int(word) for name in ("near", "far") for word in (tmp_path / name).read_text().split()]
    yield process, pids
    for pid in (process.pid, *pids):
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()
    process.wait()


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_session_is_ended_with_what_left_it(tree):
    process, pids = tree
    leader = ProcessId.of(psutil.Process(process.pid))
    assert {member.pid for member in session_of(leader)} == {process.pid, *pids[:2]}
    assert {member.pid for member in family([leader])} == {process.pid, *pids}
    assert end([leader], grace_s=5) == []
    assert [pid for pid in (process.pid, *pids) if lives(pid)] == []


def test_a_session_whose_leader_is_gone_is_still_found(tree):
    process, pids = tree
    leader = ProcessId.of(psutil.Process(process.pid))
    process.kill()
    process.wait()
    assert leader.find() is None
    assert {member.pid for member in session_of(leader)} == set(pids[:2])
    end([leader], grace_s=5)
    assert [pid for pid in pids if lives(pid)] == []


def test_another_process_that_got_the_number_is_not_touched(tree):
    process, pids = tree
    leader = dataclasses.replace(ProcessId.of(psutil.Process(process.pid)), created_s=time.time() - 1000)
    assert leader.find() is None
    assert end([leader], grace_s=1) == []
    assert all(lives(pid) for pid in (process.pid, *pids))


def test_a_process_that_is_gone_or_a_zombie_does_not_live():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = ProcessId.of(psutil.Process(process.pid))
    assert found.find() is not None
    process.kill()
    while lives(process.pid):
        time.sleep(0.02)
    assert found.find() is None
    process.communicate()
    assert found.find() is None
