"""Files and processes of a driver that was killed go when the next one starts; those of a living one stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from fleet.cluster.head import PIDS_FILE, PREFIX, sweep

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def leftover(owner: int, processes: list[list[float]]) -> Path:
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner}-", dir="/tmp"))
    (directory / PIDS_FILE).write_text(json.dumps(processes))
    return directory


def dead_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_its_processes_are_ended_and_its_directory_is_removed():
    process = subprocess.Popen(SLEEP)
    directory = leftover(dead_pid(), [[process.pid, psutil.Process(process.pid).create_time()]])
    sweep()
    assert process.wait(timeout=10) != 0
    assert not directory.exists()


def test_a_process_that_only_has_the_same_number_is_left_alone():
    process = subprocess.Popen(SLEEP)
    directory = leftover(dead_pid(), [[process.pid, 1.0]])
    try:
        sweep()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        assert not directory.exists()
    finally:
        process.kill()
        process.wait()


def test_a_living_driver_keeps_what_is_its_own():
    process = subprocess.Popen(SLEEP)
    directory = leftover(os.getpid(), [[process.pid, psutil.Process(process.pid).create_time()]])
    try:
        sweep()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        assert directory.exists()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


def test_a_directory_of_a_foreign_kind_is_left_alone():
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}notes-", dir="/tmp"))
    try:
        sweep()
        assert directory.exists()
    finally:
        shutil.rmtree(directory)
