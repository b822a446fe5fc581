"""The fault matrix on real hosts: whatever breaks, every job ends done exactly once, never two at once on a machine.

The worker is synthetic and holds the machine's lock as the real one does; the driver is a process of its own, so that it
can be killed. What is broken is real: processes, Ray's daemons, the link, the disk.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from fleet.cluster.daemon import ensure_head, read_cluster
from fleet.cluster.live import read_live
from fleet.cluster.node_process import NodeState
from fleet.cluster.site import Fleet as FleetSite
from fleet.cluster.submit import enqueue
from fleet.ledger.events import AttemptCancelled, AttemptCompleted, AttemptLost, AttemptStarted, StudyCancelled
from fleet.ledger.sqlite import Ledger
from fleet.ledger.state import Cancelled, Done, Running, StudyState, is_open
from fleet.nodes.inventory import load_inventory
from fleet.store.runs import RunStore
from fleet.study.study import Study
from tests.hosts.network import Fleet, Host, run
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

DETECTED_S = 30.0


@dataclass
class Stage:
    """A study on the two hosts, and the process that drives it."""

    fleet: Fleet
    marker: Path
    study: Study | None = None
    driver: subprocess.Popen[bytes] | None = None
    logs: list[Path] = field(default_factory=list)

    def ask(self, knobs: str, *, tasks: int = 4, machines: str = "any", name: str = "faults") -> None:
        prompts = [
            Prompt(id="p", category="k", text=f"marker={self.marker} lock=1 n={n} {knobs}") for n in range(tasks)
        ]
        made = tuple(
            Task(checkpoint=CheckpointRef(source="demo"), prompts=(prompt,), protocol=Protocol(repeats=2))
            for prompt in prompts
        )
        self.study = Study(name=name, description="", tasks=made, path=Path("s.toml"), machines=machines)  # type: ignore[arg-type]
        enqueue(self.study, data=self.fleet.data, site=FleetSite(self.fleet.inventory, self.fleet.data))

    def drive(self) -> None:
        log = self.marker / f"driver{len(self.logs)}.log"
        self.logs.append(log)
        script = Path(__file__).with_name("drive.py")
        with log.open("wb") as out:
            self.driver = subprocess.Popen(
                [sys.executable, script, self.fleet.data, self.fleet.inventory], stdout=out, stderr=out, cwd=self.marker
            )

    def kill_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill()
        self.driver.wait()

    @property
    def state(self) -> StudyState:
        assert self.study is not None
        with Ledger(self.fleet.data, read_only=True) as ledger:
            state = ledger.state(self.study.id)
        assert state is not None
        return state

    def events(self) -> list:
        assert self.study is not None
        with Ledger(self.fleet.data, read_only=True) as ledger:
            return ledger.records(self.study.id)

    def running_on(self, host: Host) -> Running | None:
        found = [s for s in self.state.jobs.values() if isinstance(s, Running) and s.node == host.name]
        return found[0] if found else None

    def wait(self, question: Callable[[], object], what: str, timeout_s: float = 90) -> float:
        """Wait until it is so; return the seconds it took."""
        began = time.monotonic()
        while not question():
            told = self.logs[-1].read_text()[-2000:] if self.logs else ""
            assert time.monotonic() - began < timeout_s, f"did not come: {what}\n{told}\n{self.state.jobs}"
            time.sleep(0.2)
        return time.monotonic() - began

    def wait_for_work(self, host: Host) -> int:
        """Wait until a benchmark holds the host's lock; return its process."""

        def at_work() -> int | None:
            running = self.running_on(host)
            lines = self.starts()
            pids = [line["pid"] for line in lines if running and line["attempt"] == running.attempt_id]
            return pids[0] if pids and f"{host.name} " in self.spans() and f" {pids[0]} begin" in self.spans() else None

        self.wait(at_work, f"a benchmark on {host.name}")
        return at_work() or 0

    def starts(self) -> list[dict]:
        path = self.marker / "runs.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def spans(self) -> str:
        path = self.marker / "spans.log"
        return path.read_text() if path.exists() else ""

    def finish(self, timeout_s: float = 150) -> StudyState:
        """Wait for the end; every job is done, each stored once, and no two ran at once on a machine."""
        self.wait(lambda: not is_open(self.state), "the end of the study", timeout_s)
        state = self.state
        assert state.count(Done) == len(state.jobs), state.jobs
        assert self.study is not None
        rows = RunStore(self.fleet.data / "store").scan(self.study.id, state.done_attempts)["runs"]
        jobs = sorted(zip(rows.column("task_id").to_pylist(), rows.column("node").to_pylist(), strict=True))
        assert len(jobs) == len(state.jobs)
        assert len(set(rows.column("attempt_id").to_pylist())) == len(state.jobs)
        self.check_spans()
        return state

    def check_spans(self) -> None:
        """A machine's next benchmark begins after the last one ended, or after its process was gone (the lock says so)."""
        by_machine = defaultdict(list)
        for line in self.spans().splitlines():
            node, at_s, pid, what = line.split()
            by_machine[node].append((float(at_s), pid, what))
        for node, lines in by_machine.items():
            open_pid = None
            for _, pid, what in sorted(lines):
                if what == "end":
                    assert open_pid == pid, f"{node}: {pid} ended while {open_pid} held the machine"
                open_pid = pid if what == "begin" else None

    def losses(self) -> list[AttemptLost]:
        return [record.event for record in self.events() if isinstance(record.event, AttemptLost)]


@pytest.fixture
def stage(fleet: Fleet, tmp_path: Path) -> Iterator[Stage]:
    ensure_head(fleet.data, load_inventory(fleet.inventory).head)
    found = Stage(fleet=fleet, marker=tmp_path)
    yield found
    if found.driver is not None and found.driver.poll() is None:
        found.driver.terminate()
        found.driver.wait(60)
    for host in (fleet.a, fleet.b):
        resumed = fleet("machines", "resume", host.name)
        assert resumed.returncode == 0, resumed.stderr


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


def test_every_machine_runs_every_task_when_the_study_says_each(stage: Stage):
    stage.ask("sleep=0.2", tasks=2, machines="each", name="each")
    stage.drive()
    state = stage.finish()
    assert sorted(job.split("@")[1] for job in state.jobs) == ["host-a", "host-a", "host-b", "host-b"]
    assert all(job.endswith(s.node) for job, s in state.jobs.items() if isinstance(s, Done))


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
    assert stage.study is not None
    with Ledger(stage.fleet.data) as ledger:
        ledger.append(StudyCancelled(study_id=stage.study.id, reason="no need"))
    stage.wait(lambda: not is_open(stage.state), "the end", 30)
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
    live = read_live(stage.fleet.data)
    assert live is not None
    (machine,) = [machine for machine in live.machines if machine.name == "host-b"]
    assert (machine.state, machine.why) == ("paused", "in use")
    assert stage.fleet("machines", "resume", "host-b").returncode == 0
    stage.finish()


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


def test_the_rows_that_were_stored_are_the_ones_that_completed(stage: Stage):
    stage.ask("sleep=0.2", tasks=2, name="rows")
    stage.drive()
    state = stage.finish()
    completed = [record.event for record in stage.events() if isinstance(record.event, AttemptCompleted)]
    assert sorted(event.attempt_id for event in completed) == sorted(state.done_attempts)
