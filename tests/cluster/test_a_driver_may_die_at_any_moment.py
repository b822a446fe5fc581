"""The driver as a process of its own: killed, interrupted or locked out; the next one goes on and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fleet.ledger.events import AttemptLost, AttemptStarted
from fleet.ledger.sqlite import Ledger

from .conftest import make_study

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

DRIVE = Path(__file__).with_name("drive.py")
TASKS = ("sleep=0.1", "sleep=20", "sleep=0.2")  # run in the order first, last, middle


def start(data: Path, *knobs: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DRIVE), str(data), *knobs], stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_start(data: Path, which: int, driver: subprocess.Popen[str]) -> dict:
    """The log line of the given start."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        assert driver.poll() is None, driver.stderr and driver.stderr.read()
        lines = (data / "runs.log").read_text().splitlines() if (data / "runs.log").exists() else []
        if len(lines) > which:
            return json.loads(lines[which])
        time.sleep(0.05)
    pytest.fail("the attempt did not start")


def wait_until_gone(pids: list[int], within_s: float = 20) -> list[int]:
    deadline = time.monotonic() + within_s
    left = pids
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
        time.sleep(0.1)
    return left


def family(driver: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(driver.pid).children(recursive=True)]


def events(data: Path):
    study = make_study(*(f"marker={data} {knobs}" for knobs in TASKS))
    with Ledger(data, read_only=True) as ledger:
        return study, [record.event for record in ledger.records(study.id)]


def test_after_a_kill_of_everything_the_next_submit_finishes_the_rest(tmp_path):
    driver = start(tmp_path, "sleep=0.1", "sleep=2", "sleep=0.2")
    wait_for_start(tmp_path, 2, driver)
    members = family(driver)
    for pid in (driver.pid, *members):
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL
    assert wait_until_gone(members) == []

    again = start(tmp_path, "sleep=0.1", "sleep=2", "sleep=0.2")
    _, complaints = again.communicate(timeout=120)
    assert again.returncode == 0, complaints
    study = make_study(*(f"marker={tmp_path} {knobs}" for knobs in ("sleep=0.1", "sleep=2", "sleep=0.2")))
    with Ledger(tmp_path, read_only=True) as ledger:
        found = [record.event for record in ledger.records(study.id)]
    starts = [event.task_id for event in found if isinstance(event, AttemptStarted)]
    assert sorted(map(starts.count, set(starts))) == [1, 1, 2]  # only the interrupted one ran twice
    (lost,) = [event for event in found if isinstance(event, AttemptLost)]
    assert lost.reason == "its driver is gone"
    assert list(Path("/tmp").glob(f"fr-{driver.pid}-*")) == []


def test_a_termination_ends_every_process_as_ctrl_c_does(tmp_path):
    driver = start(tmp_path, *TASKS)
    line = wait_for_start(tmp_path, 2, driver)
    time.sleep(0.3)
    members = family(driver)
    assert line["pid"] in members
    driver.terminate()
    _, complaints = driver.communicate(timeout=60)
    assert driver.returncode == 130, complaints
    assert complaints.strip() == "error: stopped"
    assert wait_until_gone(members) == []
    assert list(Path("/tmp").glob(f"fr-{driver.pid}-*")) == []
    _, found = events(tmp_path)
    (lost,) = [event for event in found if isinstance(event, AttemptLost)]
    assert (lost.reason, lost.retry, lost.counted) == ("interrupted", True, False)


def test_a_second_driver_is_refused_while_the_first_works(tmp_path):
    driver = start(tmp_path, "sleep=20")
    try:
        wait_for_start(tmp_path, 0, driver)
        second = start(tmp_path, "sleep=20")
        _, complaints = second.communicate(timeout=60)
        assert second.returncode == 3
        assert f"process {driver.pid} is running studies there" in complaints
    finally:
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=60)
    assert driver.returncode == 130
