"""From nothing to a cluster over a real ssh, into real network namespaces: up, again, a killed raylet, down."""

from __future__ import annotations

import json
import os
import signal
import stat
import time

import pytest

from fleet.cli.machine_reports import read_reports
from fleet.cluster.daemon import attached, present, present_ids, read_cluster
from fleet.cluster.node_process import NodeState
from fleet.cluster.processes import ProcessId, session_of
from fleet.nodes.node import NodeName
from tests.hosts.network import Fleet, Host
from worker.contract.build import build_hash

A, B = NodeName("host-a"), NodeName("host-b")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def namespace_of(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def state(host: Host) -> NodeState:
    found = NodeState.read(host.root)
    assert found is not None
    return found


def session(host: Host) -> ProcessId:
    found = state(host).session
    assert found is not None
    return found


def wait_until(question, what: str, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, f"did not come: {what}"
        time.sleep(0.2)


def test_up_makes_a_node_of_each_machine_from_nothing(fleet: Fleet):
    ended = fleet.first_up
    assert ended is not None
    print(f"first up: {fleet.seconds:.1f} s\n{ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    for host in (fleet.a, fleet.b):
        assert f"{host.name}  up  (installed this build, started the node)" in ended.stdout
        assert state(host).process.find() is not None
        assert namespace_of(state(host).process.pid) == namespace_of(host.pids()[0])


def test_what_the_machines_reported_is_kept_with_the_head_s_own_build(fleet: Fleet):
    reports = read_reports(fleet.data)
    assert {report.build_hash for report in reports.values()} == {build_hash()}
    assert reports["host-a"].facts["cpu_cores"] == len(os.sched_getaffinity(0))
    listed = json.loads(fleet("machines", "list", "--json").stdout)["machines"]
    assert [machine["state"] for machine in listed] == ["known", "known"]


def test_the_token_is_for_its_owner_only_on_the_head_and_on_the_machines(fleet: Fleet):
    for path in (fleet.data / "token", fleet.a.root / "token", fleet.b.root / "token"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes() == (fleet.data / "token").read_bytes()
    assert stat.S_IMODE((fleet.data / "cluster.json").stat().st_mode) == 0o600


def test_up_again_changes_nothing_and_says_so(fleet: Fleet):
    before = [state(host) for host in (fleet.a, fleet.b)], read_cluster(fleet.data)
    files = {path: path.stat().st_mtime_ns for path in fleet.a.root.glob("*") if not path.name.endswith(".log")}
    ended = fleet("up")
    print(ended.stderr)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["host-a  up  (nothing to change)", "host-b  up  (nothing to change)"]
    assert ([state(host) for host in (fleet.a, fleet.b)], read_cluster(fleet.data)) == before
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_a_task_with_a_machine_s_label_runs_in_its_namespace_at_normal_niceness(fleet: Fleet):
    info = read_cluster(fleet.data)
    assert info is not None
    with attached(info):
        import ray

        def where() -> tuple[str, int, int]:
            return os.readlink("/proc/self/ns/net"), os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0)

        assert present() == {"host-a", "host-b"}
        for host in (fleet.a, fleet.b):
            task = ray.remote(where).options(
                num_cpus=0, resources={"bench_slot": 1}, label_selector={"host": host.name}
            )
            found, niceness, number = ray.get(task.remote(), timeout=60)
            assert found == namespace_of(state(host).process.pid)
            assert niceness == 0
            assert number == session(host).pid


def test_a_raylet_that_is_killed_comes_back_by_itself(fleet: Fleet):
    info = read_cluster(fleet.data)
    assert info is not None
    with attached(info):
        before, process = present_ids(), state(fleet.b).process
        raylet = next(found for found in session_of(session(fleet.b)) if found.name() == "raylet")
        raylet.send_signal(signal.SIGKILL)
        wait_until(lambda: present_ids().get(B, frozenset()) - before[B], "the node's new raylet")
        assert present_ids()[A] == before[A]
    assert state(fleet.b).process == process


def test_a_node_of_another_build_is_installed_again_and_started_again(fleet: Fleet):
    (fleet.b.root / "installed").write_text("another build")
    before = state(fleet.b)
    ended = fleet("up", "host-b")
    assert ended.stdout == "host-b  up  (installed this build, started the node)\n", ended.stderr
    assert state(fleet.b).process != before.process
    assert before.process.find() is None


def test_a_head_that_was_killed_is_started_again_with_the_same_token_and_the_machines_come_back(fleet: Fleet):
    before, token = read_cluster(fleet.data), (fleet.data / "token").read_bytes()
    nodes = [state(host).process for host in (fleet.a, fleet.b)]
    assert before is not None
    for process in session_of(before.leader):
        process.kill()
    ended = fleet("up")
    assert ended.returncode == 0, ended.stderr
    after = read_cluster(fleet.data)
    assert after is not None
    assert after.leader != before.leader
    assert (fleet.data / "token").read_bytes() == token
    assert [state(host).process for host in (fleet.a, fleet.b)] == nodes


def test_down_leaves_no_process_of_the_machines_and_none_of_the_head(fleet: Fleet):
    info = read_cluster(fleet.data)
    assert info is not None
    one = fleet("down", "host-a")
    assert (one.returncode, one.stdout) == (0, "host-a  down\n"), one.stderr
    assert leftover(fleet.a) == []
    assert info.leader.find() is not None
    both = fleet("down")
    assert both.returncode == 0, both.stderr
    assert "host-a: nothing ran" in both.stderr
    assert leftover(fleet.b) == []
    assert session_of(info.leader) == []
    assert read_cluster(fleet.data) is None


def leftover(host: Host) -> list[str]:
    """What runs in the namespace beside its sshd."""
    titles = []
    for pid in host.pids():
        try:
            with open(f"/proc/{pid}/cmdline") as handle:
                titles.append(handle.read().replace("\0", " ").strip())
        except OSError:
            continue
    return [title for title in titles if title and not title.startswith("sshd:") and "sshd" not in title.split()[0]]
