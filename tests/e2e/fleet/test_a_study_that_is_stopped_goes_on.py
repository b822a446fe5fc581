"""Ctrl-C and a kill -9 in the middle of a study on the bundled model: nothing is left running, the rest runs later."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MATRIX = "verify_width = [2, 3]\nslots_per_layer = [64]"


def started_twice(fleet, driver) -> list[psutil.Process]:
    """All processes below the driver, once its second task measures."""
    lines = []
    for line in driver.stderr:
        lines.append(line)
        if "[2/2]" in line and "code" in line:
            return psutil.Process(driver.pid).children(recursive=True)
    pytest.fail(f"the second task never measured: {lines}")


def wait_until_gone(processes: list[psutil.Process], within_s: float = 20) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_ctrl_c_leaves_no_process_and_says_how_to_go_on(fleet):
    study = str(fleet.write_study(matrix=MATRIX, max_tokens=48))
    driver = fleet.start("submit", study)
    members = started_twice(fleet, driver)
    assert any("worker.cli" in " ".join(process.cmdline()) for process in members)
    os.killpg(driver.pid, signal.SIGINT)
    out, complaints = driver.communicate(timeout=60)
    assert driver.returncode == 130, complaints
    assert out == ""
    assert complaints.splitlines()[-2:] == [
        "error: stopped; what is done stays done",
        f"hint: go on with: fleet submit {study} --data {fleet.data}",
    ]
    assert wait_until_gone(members) == []
    assert [task["state"] for task in fleet.state()["tasks"]] == ["done", "retrying"]


def test_when_only_the_driver_is_killed_the_benchmark_ends_and_the_next_submit_clears_the_rest(fleet):
    study = str(fleet.write_study(matrix=MATRIX, max_tokens=48))
    driver = fleet.start("submit", study)
    members = started_twice(fleet, driver)
    benchmarks = [process for process in members if "worker.cli" in " ".join(process.cmdline())]
    assert benchmarks
    driver.kill()
    driver.communicate()
    assert wait_until_gone(benchmarks) == []
    assert [task["state"] for task in fleet.state()["tasks"]] == ["done", "running"]
    rest = fleet.run("submit", study)
    assert rest.returncode == 0, rest.stderr
    assert "2 of 2 tasks done" in rest.stdout
    assert [task["attempts"] for task in fleet.state()["tasks"]] == [1, 2]
    assert wait_until_gone(members, within_s=1) == []
