"""The fault matrix on real hosts: whatever breaks, every job ends done exactly once, never two at once on a machine.

The worker is synthetic and holds the machine's lock as the real one does; the driver is a process of its own, so that it
can be killed. What is broken is real: processes, Ray's daemons, the link, the disk.
"""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from fleet.cluster.daemon import read_cluster
from fleet.cluster.node_process import NodeState
from fleet.ledger.events import AttemptCancelled, AttemptCompleted, AttemptStarted
from fleet.ledger.state import Cancelled, Done
from tests.hosts.network import Host, run
from tests.hosts.stage import Stage

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

DETECTED_S = 30.0


def supervisor_of(stage: Stage, pid: int) -> psutil.Process:
    line = next(line for line in stage.starts() if line["pid"] == pid)
    return psutil.Process(line["parent"])


def raylet_of(host: Host) -> psutil.Process:
    return next(psutil.Process(pid) for pid in host.pids() if psutil.Process(pid).name() == "raylet")


def test_jobs_go_to_both_machines_and_each_is_done_once(stage: Stage):
    stage.ask("sleep=0.5", tasks=6)
    stage.drive()
    state = stage.finish()
    assert {job.node for job in state.jobs.values() if isinstance(job, Done)} == {"host-a", "host-b"}
    assert stage.losses() == []
    completed = [record.event for record in stage.events() if isinstance(record.event, AttemptCompleted)]
    assert sorted(event.attempt_id for event in completed) == sorted(state.done_attempts)


def test_a_killed_benchmark_and_a_killed_supervisor_cost_one_attempt_each(stage: Stage):
    stage.ask("sleep=3", tasks=4, name="kills")
    stage.drive()
    os.kill(stage.wait_for_work(stage.fleet.a), signal.SIGKILL)
    supervisor_of(stage, stage.wait_for_work(stage.fleet.b)).kill()
    stage.wait(lambda: len(stage.losses()) == 2, "two losses", DETECTED_S)
    stage.finish()
    assert sorted("SIGKILL" in loss.reason or "supervisor" in loss.reason for loss in stage.losses()) == [True, True]


def test_a_killed_raylet_is_seen_and_its_machine_comes_back(stage: Stage):
    stage.ask("sleep=6", tasks=3, name="raylet")
    stage.drive()
    stage.wait_for_work(stage.fleet.b)
    raylet_of(stage.fleet.b).kill()
    seconds = stage.wait(stage.losses, "the loss", DETECTED_S)
    print(f"a killed raylet was seen after {seconds:.1f} s")
    stage.finish()


def test_a_killed_driver_is_replaced_and_what_ran_runs_again(stage: Stage):
    stage.ask("sleep=4", tasks=4, name="driver")
    stage.drive()
    stage.wait_for_work(stage.fleet.a)
    stage.kill_driver()
    stage.drive()
    stage.finish()
    assert {loss.reason for loss in stage.losses()} == {"its driver is gone"}


def test_the_whole_head_may_die_and_start_again(stage: Stage):
    stage.ask("sleep=4", tasks=4, name="head")
    stage.drive()
    stage.wait_for_work(stage.fleet.a)
    stage.kill_driver()
    kill_head(stage)
    stage.drive()
    stage.finish(timeout_s=200)


def test_a_living_driver_starts_the_head_again_that_died_under_it(stage: Stage):
    stage.ask("sleep=4", tasks=4, name="under")
    stage.drive()
    stage.wait_for_work(stage.fleet.a)
    kill_head(stage)
    stage.finish(timeout_s=220)
    assert stage.driver is not None
    assert stage.driver.poll() is None


def kill_head(stage: Stage) -> None:
    """Every process of the head's Ray, at once."""
    info = read_cluster(stage.fleet.data)
    assert info is not None
    leader = info.leader.find()
    assert leader is not None
    for process in [*leader.children(recursive=True), leader]:
        process.kill()


def test_a_frozen_machine_is_given_up_in_time_and_is_used_again_when_it_thaws(stage: Stage):
    stage.ask("sleep=3", tasks=6, name="frozen")
    stage.drive()
    stage.wait_for_work(stage.fleet.b)
    frozen = [pid for pid in stage.fleet.b.pids() if psutil.Process(pid).name() != "sshd"]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        seconds = stage.wait(stage.losses, "the loss", DETECTED_S + 10)
    finally:
        for pid in frozen:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)
    print(f"a frozen machine was given up after {seconds:.1f} s")
    assert seconds < DETECTED_S
    stage.finish()
    stage.ask("sleep=0.2", tasks=1, machines="each", name="thawed")
    stage.finish()


def test_a_cut_link_is_seen_and_the_machine_is_used_again_when_it_is_back(stage: Stage):
    stage.ask("sleep=3", tasks=6, name="link")
    stage.drive()
    stage.wait_for_work(stage.fleet.b)
    inside = ("ip", "-n", stage.fleet.b.namespace, "link", "set", "eth0")
    run(*inside, "down")
    try:
        seconds = stage.wait(stage.losses, "the loss", DETECTED_S + 10)
    finally:
        run(*inside, "up")
    print(f"a cut link was seen after {seconds:.1f} s")
    assert seconds < DETECTED_S
    stage.finish()
    stage.ask("sleep=0.2", tasks=1, machines="each", name="linked")
    stage.finish()


def test_a_cancelled_study_ends_what_runs_and_starts_no_more(stage: Stage):
    stage.ask("sleep=60", tasks=4, name="cancelled")
    stage.drive()
    pid = stage.wait_for_work(stage.fleet.a)
    stage.cancel()
    assert stage.state.count(Cancelled) == 4
    stage.wait(lambda: not psutil.pid_exists(pid), "the end of the benchmark", 15)
    ended = [record.event for record in stage.events() if isinstance(record.event, AttemptCancelled)]
    assert {event.again for event in ended} == {False}
    assert len(ended) == len([r for r in stage.events() if isinstance(r.event, AttemptStarted)])


def test_a_paused_machine_gets_nothing_until_it_is_resumed(stage: Stage):
    assert stage.fleet("machines", "pause", "host-b", "--reason", "in use").returncode == 0
    stage.ask("sleep=0.2", tasks=1, machines="each", name="paused")
    stage.drive()
    stage.wait(lambda: stage.state.count(Done) == 1, "the other machine's job")
    machine = stage.machine("host-b")
    assert (machine.state, machine.why) == ("paused", "in use")
    assert stage.fleet("machines", "resume", "host-b").returncode == 0
    stage.finish()


def test_a_machine_that_loses_three_in_a_row_is_put_aside_until_its_owner_gives_it_back(stage: Stage):
    stage.ask("sleep=600", tasks=1, name="strikes")
    assert stage.fleet("machines", "pause", "host-a", "--reason", "not this one").returncode == 0
    stage.drive()
    for losses in range(1, 4):
        supervisor_of(stage, stage.wait_for_work(stage.fleet.b)).kill()
        stage.wait(lambda losses=losses: len(stage.losses()) == losses, f"loss {losses}", DETECTED_S)
    stage.wait(lambda: stage.machine("host-b").state == "aside", "the machine put aside")
    assert (stage.machine("host-b").why or "").startswith(
        "3 attempts in a row were lost: its supervisor or its node is gone"
    )
    assert stage.fleet("machines", "resume", "host-b").returncode == 0
    stage.wait_for_work(stage.fleet.b)
    stage.cancel()


def test_a_node_of_another_build_gets_its_job_taken_back_and_is_named(stage: Stage):
    state = NodeState.read(stage.fleet.b.root)
    assert state is not None
    (packages,) = (stage.fleet.b.root / "venv").glob("lib/python*/site-packages/fleet/errors.py")
    text = packages.read_text()
    packages.unlink()  # a hard link: the other machine's file must stay as it is
    packages.write_text(text + "\n# another build\n")
    try:
        stage.ask("sleep=0.2", tasks=3, name="build")
        stage.drive()
        done = stage.finish()
        assert {job.node for job in done.jobs.values() if isinstance(job, Done)} == {"host-a"}
        reasons = [r.event.reason for r in stage.events() if isinstance(r.event, AttemptCancelled)]
        assert len(reasons) == 1
        assert "fleet up host-b installs the same" in reasons[0]
    finally:
        packages.write_text(text)
