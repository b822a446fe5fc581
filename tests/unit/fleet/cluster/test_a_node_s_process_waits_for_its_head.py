"""The node's process without any head: one per root, patient, told apart by its configuration, ended without a trace."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cluster.node_process import EXIT_BUSY, NodeConfig, NodeState, make_private, own_address


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "fleet.cluster.node_process", *map(str, arguments)]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)


@pytest.fixture
def config(tmp_path) -> Iterator[NodeConfig]:
    """A node whose head's port nobody listens at."""
    found = NodeConfig(
        name="n", head="127.0.0.1:9", root=str(tmp_path), ray_temp=str(tmp_path / "t"), ports=(24000, 24999), build="b"
    )
    (tmp_path / "node.json").write_text(found.to_json())
    yield found
    call("--stop", tmp_path / "node.json")


def test_it_starts_once_waits_and_ends(config: NodeConfig):
    file = Path(config.root) / "node.json"
    assert NodeConfig.read(file) == config
    assert call("--detach", file).returncode == 0
    running = json.loads(call("--status", file).stdout)
    assert (running["running"], running["current"], running["head_answers"], running["ray_processes"]) == (
        True,
        True,
        False,
        0,
    )
    assert os.getsid(running["pid"]) == running["pid"]
    again = call("--detach", file)
    assert again.returncode == EXIT_BUSY
    assert "another process keeps the node" in again.stderr
    assert json.loads(call("--status", file).stdout)["pid"] == running["pid"]
    file.write_text(config.to_json().replace('"b"', '"c"'))
    assert json.loads(call("--status", file).stdout)["current"] is False
    assert json.loads(call("--stop", file).stdout) == {"ran": True, "left": []}
    assert json.loads(call("--stop", file).stdout) == {"ran": False, "left": []}
    assert "does not answer; again in 1 s" in (Path(config.root) / "node.log").read_text()


def test_it_ends_by_itself_when_asked_by_a_signal(config: NodeConfig):
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet.cluster.node_process", str(Path(config.root) / "node.json")]
    )
    while NodeState.read(Path(config.root)) is None:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert NodeState.read(Path(config.root)) is None


def test_what_a_killed_predecessor_left_is_ended_first(config: NodeConfig):
    root = Path(config.root)
    ray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    call("--detach", root / "node.json")
    first = NodeState.read(root)
    assert first is not None
    process = first.process.find()
    assert process is not None
    process.kill()
    process.wait()
    import psutil

    from fleet.cluster.processes import ProcessId

    NodeState(process=first.process, config="b", session=ProcessId.of(psutil.Process(ray.pid))).write(root)
    call("--detach", root / "node.json")
    assert ray.wait(30) == -signal.SIGTERM


def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path):
    for text in (None, "{", "{}", "[]"):
        if text is not None:
            (tmp_path / "node.json").write_text(text)
        ended = call("--status", tmp_path / "node.json")
        assert ended.returncode == 2
        assert len(ended.stderr.splitlines()) == 1


def test_a_head_that_does_not_answer_gives_no_address():
    assert own_address("127.0.0.1:9") is None


def test_a_directory_among_other_users_is_ours_alone_or_refused(tmp_path):
    make_private(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir(mode=0o777)
    make_private(tmp_path / "open")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(PermissionError):
        make_private(tmp_path / "link")
