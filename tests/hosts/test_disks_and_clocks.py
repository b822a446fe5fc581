"""Disks that fill up and clocks that are wrong, on real hosts: said in a sentence, and every job ends done all the same."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fleet.ledger.state import Done
from fleet.store.layout import table_file
from fleet.store.runs import RunStore
from tests.hosts.network import Fleet, Host, run
from tests.hosts.stage import Stage
from worker.contract.schema import SCHEMAS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

HOUR_S = 3600


def fill(folder: Path) -> Path:
    """Write until the disk of a folder holds nothing more."""
    path = folder / "filler"
    with path.open("ab", buffering=0) as handle:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while handle.write(b"\0" * size):
                    pass
    assert shutil.disk_usage(folder).free == 0
    return path


@pytest.fixture
def small_spool(fleet: Fleet) -> Iterator[Path]:
    """A disk of 1 MB at host-b's spool, in the host's own view of the disks; the path leads there from outside."""
    host = fleet.b
    pid = shell_of(host)
    spool = host.root / "spool"
    inside = ("nsenter", "--mount", "--target", pid)
    run(*inside, "mkdir", "-p", spool)
    run(*inside, "mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", spool)
    yield Path(f"/proc/{pid}/root{spool}")
    run(*inside, "umount", "-l", spool)


def shell_of(host: Host) -> int:
    """The host's sshd, whose view of the disks all its processes have."""
    return next(pid for pid in host.pids() if psutil.Process(pid).name() == "sshd")


def test_a_disk_that_fills_up_under_a_benchmark_is_named_and_its_job_ends_done(stage: Stage, small_spool: Path):
    stage.ask("sleep=4", tasks=3, name="spool")
    stage.drive()
    stage.wait_for_work(stage.fleet.b)
    filler = fill(small_spool)
    stage.wait(stage.failures, "the failure", 30)
    stage.wait(lambda: stage.state.count(Done) >= 2, "work on the other machine")
    filler.unlink()
    state = stage.finish()
    assert stage.losses() == []
    (failure,) = stage.failures()
    assert (failure.kind, failure.error, failure.retry) == ("transient", "StorageError", True)
    assert f"the disk of {stage.fleet.b.root}/spool/{failure.attempt_id} is full" in failure.message
    assert {job.node for job in state.jobs.values() if isinstance(job, Done)} == {"host-a"}  # host-b is left alone

    stage.ask("sleep=0.2", tasks=1, machines="each", name="space")
    stage.finish()


@pytest.fixture
def small_data(stage: Stage) -> Iterator[Stage]:
    """The same head, driven from a data directory on a disk of 8 MB."""
    data = stage.fleet.hosts.small_disk / "data"
    data.mkdir(mode=0o700)
    shutil.copy(stage.fleet.data / "cluster.json", data)
    stage.data = data
    yield stage
    if stage.driver is not None and stage.driver.poll() is None:
        stage.driver.terminate()
        stage.driver.wait(60)
    shutil.rmtree(data)
    stage.data = stage.fleet.data


def test_a_full_disk_of_the_head_stops_the_driver_with_a_sentence_and_a_new_one_goes_on(small_data: Stage):
    stage = small_data
    stage.ask("sleep=3", tasks=4, name="full")
    stage.drive()
    stage.wait_for_work(stage.fleet.a)
    filler = fill(stage.data)
    assert stage.driver is not None
    assert stage.driver.wait(60) == 2
    told = stage.logs[-1].read_text()
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, told
    assert str(stage.data) in errors[0]
    assert "free some space" in errors[0]
    assert "Traceback" not in told
    assert [line["pid"] for line in stage.starts() if psutil.pid_exists(line["pid"])] == []
    assert half_stored(stage) == []
    filler.unlink()
    stage.drive()
    stage.finish()
    assert half_stored(stage) == []


def half_stored(stage: Stage) -> list[Path]:
    """What is in the store and not whole: drafts, and attempts that lack a table."""
    top = RunStore(stage.data / "store").directory
    lacking = [
        folder
        for folder in top.glob("v1/study=*/task=*/attempt=*")
        if not all(table_file(folder, name).exists() for name in SCHEMAS)
    ]
    return lacking + [path for path in top.rglob("*") if path.name.startswith(".")]


def test_benchmarks_whose_clock_is_an_hour_off_are_done_without_a_loss(stage: Stage):
    stage.worker = (sys.executable, str(Path(__file__).with_name("wrong_clock.py")), str(HOUR_S))
    stage.ask("sleep=2", tasks=4, name="clock")
    stage.drive()
    state = stage.finish()
    assert stage.losses() == []
    assert stage.failures() == []
    assert all(job.tries.started == 1 for job in state.jobs.values())
    rows = RunStore(stage.data / "store").scan(state.study_id, state.done_attempts)["runs"]
    ahead = [moment.timestamp() - state.submitted_at_s for moment in rows.column("started_at").to_pylist()]
    assert all(seconds > HOUR_S for seconds in ahead)  # the clock was off indeed


@pytest.fixture
def wrong_date(fleet: Fleet) -> Iterator[Host]:
    """A `date` on host-a that is an hour ahead."""
    program = fleet.a.programs / "date"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = +%s ] && exec echo $(($(/bin/date +%s) + {HOUR_S}))\nexec /bin/date "$@"\n'
    )
    program.chmod(0o755)
    yield fleet.a
    with contextlib.suppress(FileNotFoundError):
        os.unlink(program)


def test_doctor_names_the_machine_whose_clock_is_off_and_by_how_much(fleet: Fleet, wrong_date: Host):
    found = fleet.parse(fleet("doctor", "--json"))
    clock = found[wrong_date.name]["clock"]
    assert clock["level"] == "warning"
    assert abs(float(clock["detail"].split()[0]) - HOUR_S) < 60
    assert clock["remedy"] == "turn on its network time"
    assert found[fleet.b.name]["clock"]["level"] == "ok"
