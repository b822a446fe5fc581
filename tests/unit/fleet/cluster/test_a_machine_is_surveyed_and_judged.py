"""What a machine printed becomes facts, and facts become findings with remedies; also those of a Mac, from samples."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from fleet.cluster.doctor import Seen, examine, examine_head
from fleet.cluster.install import Build, check_machine, check_space
from fleet.cluster.node_process import NodeConfig
from fleet.cluster.service import plist
from fleet.cluster.ssh import Ssh, SshError
from fleet.cluster.survey import _SCRIPT, parse_survey
from fleet.cluster.wheel import Wheel
from fleet.nodes.inventory import Head
from fleet.nodes.node import Node, NodeName, NodePaths

MAC = """epoch\t1000
home\t/Users/bench
root\t/Users/bench/.mlx-fleet
user\tbench
system\tDarwin
processor\tarm64
niceness\t0
uv\t/opt/homebrew/bin/uv
python\t/usr/bin/python3
below\t/Users/bench
writable\tyes
disk\t/dev/disk3s5   971350180 500000000 400000000    56%    /System/Volumes/Data
installed\t
sleep\t1
sudo\tyes
"""
NODE = Node(name=NodeName("mini-1"), address="192.0.2.7")
BUILD = Build(wheel=Wheel(name="w.whl", content=b"w"), lock=b"l", python="3.12.7")
MARK = BUILD.mark(None)
RUNNING = {"running": True, "current": True, "pid": 7, "niceness": 0, "ray_processes": 4, "head_answers": True}


def mac(**changes):
    survey = parse_survey(MAC, begin_s=1000.0, end_s=1001.0)
    values = {"installed": MARK, "node": True, "sleep_min": 0, **changes}
    return dataclasses.replace(survey, **values)


def judged(seen: Seen, node: Node = NODE) -> dict[str, tuple[str, str]]:
    return {finding.check: (finding.level, finding.remedy) for finding in examine(node, seen, BUILD, Head())}


def test_a_mac_s_lines_become_its_survey():
    survey = parse_survey(MAC, begin_s=1000.0, end_s=1001.0)
    assert (survey.is_mac, survey.root, survey.uv) == (True, "/Users/bench/.mlx-fleet", "/opt/homebrew/bin/uv")
    assert survey.free_bytes == 400000000 * 1024
    assert (survey.clock_off_s, survey.clock_error_s) == (0.0, 1.0)
    assert (survey.installed, survey.node, survey.sleep_min, survey.sudo) == (None, False, 1, True)


@pytest.mark.parametrize(
    "line",
    [
        "disk\tmap auto home 971350180 500000000 400000000 56% /Volumes/Fast SSD",
        "disk\t/dev/vda 971350180 500000000 400000000 56% /",
    ],
)
def test_free_space_is_read_whatever_spaces_the_names_have(line):
    printed = MAC.replace(next(found for found in MAC.splitlines() if found.startswith("disk")), line)
    assert parse_survey(printed, begin_s=0, end_s=0).free_bytes == 400000000 * 1024


@pytest.mark.parametrize("printed", ["", "Welcome!\n", MAC.replace("epoch\t1000", "epoch\tsoon")])
def test_another_output_is_refused(printed):
    with pytest.raises((KeyError, ValueError)):
        parse_survey(printed, begin_s=0, end_s=0)


def test_the_script_runs_in_this_machine_s_shell_and_makes_nothing(tmp_path):
    root = tmp_path / "a b" / "$(id)"
    printed = subprocess.run(
        ["/bin/sh", "-c", _SCRIPT, "s", str(root)], check=True, capture_output=True, text=True
    ).stdout
    survey = parse_survey(printed, begin_s=0, end_s=0)
    assert (survey.root, survey.below, survey.writable, survey.node) == (str(root), str(tmp_path), True, False)
    assert survey.free_bytes
    assert list(tmp_path.iterdir()) == []
    home = subprocess.run(["/bin/sh", "-c", _SCRIPT, "s", "~/x"], check=True, capture_output=True, text=True).stdout
    assert parse_survey(home, begin_s=0, end_s=0).root.endswith("/x")
    assert "~" not in parse_survey(home, begin_s=0, end_s=0).root


def test_a_mac_that_is_well_has_nothing_to_mend():
    facts = {"mlx_wheel_tag": "cp312-cp312-macosx_26_0_arm64", "os_version": "26.3"}
    seen = Seen(survey=mac(), status=RUNNING, facts=facts, token_mode="-rw-------", daemon_runs=True)
    found = judged(seen)
    assert set(found.values()) == {("ok", "")}
    assert {"sleep", "daemon", "mlx wheel", "clock", "token", "socket path"} <= set(found)


@pytest.mark.parametrize(
    ("survey", "more", "check", "level", "remedy"),
    [
        ({"clock_off_s": 9.0}, {}, "clock", "warning", "network time"),
        ({"clock_off_s": -9.0}, {}, "clock", "warning", "network time"),
        ({"writable": False}, {}, "root", "problem", "paths.root"),
        ({"free_bytes": 1 << 20}, {}, "disk", "problem", "free 0.2 GiB"),
        ({"free_bytes": 1 << 30, "installed": None}, {}, "disk", "problem", "free 2.0 GiB"),
        ({"free_bytes": None}, {}, "disk", "unknown", "look at it"),
        ({"uv": None}, {}, "uv", "warning", "tools/bin/uv"),
        ({"uv": None, "python": None}, {}, "uv", "problem", "tools/bin/uv"),
        ({"installed": "x"}, {}, "build", "problem", "fleet up mini-1"),
        ({"ray_left": True}, {}, "other Ray", "warning", "remove the file"),
        ({"sleep_min": 10}, {}, "sleep", "warning", "pmset -a sleep 0"),
        ({}, {"daemon_runs": False}, "daemon", "problem", "fleet up"),
        ({}, {"token_mode": "-rw-r--r--"}, "token", "problem", "chmod 600"),
        ({}, {"python_found": False}, "python", "warning", "uv python install 3.12.7"),
        ({}, {"status": None}, "node", "problem", "fleet up"),
        ({}, {"status": {**RUNNING, "running": False}}, "node", "problem", "fleet up"),
        ({}, {"status": {**RUNNING, "head_answers": False}}, "head from there", "problem", "Local Network"),
        ({}, {"status": {**RUNNING, "niceness": 5}}, "niceness", "warning", "niceness 0"),
        (
            {},
            {"facts": {"mlx_wheel_tag": "macosx_15_0_arm64", "os_version": "26.3"}},
            "mlx wheel",
            "warning",
            "upgrade",
        ),
    ],
)
def test_each_trap_is_found_with_what_mends_it(survey, more, check, level, remedy):
    values = {"status": RUNNING, "token_mode": "-rw-------", "daemon_runs": True, **more}
    found = judged(Seen(survey=mac(**survey), **values))
    assert found[check][0] == level
    assert remedy in found[check][1]
    others = {name for name, (judgement, _) in found.items() if judgement != "ok"} - {check}
    assert others == ({"build"} if survey.get("installed", MARK) is None else set())


def test_a_place_of_ray_that_is_too_long_is_found():
    node = dataclasses.replace(NODE, paths=NodePaths(ray_temp="/tmp/" + "x" * 40))
    assert judged(Seen(survey=mac(), status=RUNNING, daemon_runs=True), node)["socket path"][0] == "problem"


def test_a_head_on_loopback_with_machines_elsewhere_is_found(tmp_path):
    found = {finding.check: finding for finding in examine_head([NODE], tmp_path, Head()).findings}
    assert found["address"].level == "problem"
    assert found["head"].remedy == "fleet up"


def test_nothing_is_installed_where_it_cannot_run():
    ssh = Ssh(NODE)
    check_machine(ssh, mac())
    for changes, message in (({"processor": "x86_64"}, "Darwin x86_64"), ({"writable": False}, "cannot write")):
        with pytest.raises(SshError, match=message):
            check_machine(ssh, mac(**changes))
    with pytest.raises(SshError, match=r"0\.50 GiB are free"):
        check_space(ssh, mac(free_bytes=1 << 29))


def test_equal_builds_have_equal_marks():
    assert BUILD.mark(None) == BUILD.mark("3.12.7") == MARK
    assert BUILD.mark("3.13.1") != MARK
    assert dataclasses.replace(BUILD, lock=b"m").mark(None) != MARK
    assert dataclasses.replace(BUILD, wheel=Wheel(name="w.whl", content=b"v")).mark(None) != MARK


def test_the_launch_daemon_is_golden():
    config = NodeConfig(
        name="mini-1",
        head="192.0.2.1:6379",
        root="/Users/bench/.mlx-fleet",
        ray_temp="/tmp/fr_mini-1",
        ports=(1, 2),
        build="b",
    )
    golden = Path(__file__).with_name("mlx-fleet.node.mini-1.plist")
    assert plist(config, user="bench", home="/Users/bench").decode() == golden.read_text()
