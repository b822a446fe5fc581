"""`fleet machines`: what add writes, list and show read; a name is never overwritten; remove deletes one file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.cli.machine_reports import append_reports, read_reports
from fleet.errors import UsageError
from fleet.ledger.events import MachineReported
from fleet.ledger.sqlite import Ledger
from fleet.nodes.edit import add_machine, remove_machine
from fleet.nodes.inventory import Inventory, load_inventory
from fleet.nodes.node import NodeName

FACTS = {"chip": "Apple M4", "gpu_cores": 10, "memory_bytes": 16 << 30, "os_name": "macOS", "os_version": "26.3"}


def machines(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.main", "machines", *arguments, "--data", str(data), "--inventory", str(data)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_add_writes_is_listed_shown_and_removed(tmp_path):
    added = machines(tmp_path, "add", "mini-1", "192.0.2.7", "--user", "bench", "--port", "2222", "--tag", "lab")
    assert (added.returncode, added.stderr) == (0, "")
    assert "fleet up mini-1" in added.stdout
    append_reports(tmp_path, [MachineReported(machine=NodeName("mini-1"), facts=FACTS, build_hash="b" * 16)])
    (machine,) = json.loads(machines(tmp_path, "list", "--json").stdout)["machines"]
    assert (machine["address"], machine["tags"], machine["ssh"]["port"]) == ("192.0.2.7", ["lab"], 2222)
    assert (machine["facts"]["chip"], machine["facts"]["memory_gb"], machine["state"]) == ("Apple M4", 16.0, "known")
    assert "16 GiB" in machines(tmp_path, "list").stdout
    assert "facts.os               macOS 26.3" in machines(tmp_path, "show", "mini-1").stdout
    assert machines(tmp_path, "remove", "mini-1").returncode == 0
    assert "no machines in" in machines(tmp_path, "list").stdout
    assert list((tmp_path / "machines").iterdir()) == []


def test_a_name_that_exists_is_refused_and_its_file_is_not_touched(tmp_path):
    add_machine(Inventory(folder=tmp_path), "mini-1", "a")
    with pytest.raises(UsageError, match="there is a machine 'Mini-1'"):
        add_machine(load_inventory(tmp_path), "Mini-1", "b")
    with pytest.raises(UsageError, match="exists already"):
        add_machine(Inventory(folder=tmp_path), "mini-1", "b")
    (node,) = load_inventory(tmp_path).nodes
    assert node.address == "a"
    assert [path.name for path in (tmp_path / "machines").iterdir()] == ["mini-1.toml"]


@pytest.mark.parametrize(
    ("name", "address", "more", "expected"),
    [
        ("../mini", "a", {}, "name is '../mini'"),
        ("mini", "a b", {}, "address is 'a b'"),
        ("mini", "a", {"user": "$(id)"}, "ssh.user is"),
        ("mini", "a", {"tags": ("x y",)}, "tags[0] is 'x y'"),
        ("mini", "a", {"port": 0}, "ssh.port is 0"),
    ],
)
def test_what_the_reader_would_refuse_is_never_written(tmp_path, name, address, more, expected):
    with pytest.raises(UsageError) as caught:
        add_machine(Inventory(folder=tmp_path), name, address, **more)
    assert expected in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_kept_whatever_characters_it_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    add_machine(Inventory(folder=tmp_path), "mini", "a", key='my "key" \\ é')
    (node,) = load_inventory(tmp_path).nodes
    assert node.ssh.key == tmp_path / 'my "key" \\ é'


def test_remove_finds_a_machine_in_a_file_of_another_name(tmp_path):
    (tmp_path / "machines").mkdir()
    for name in ("a", "b"):
        (tmp_path / "machines" / f"{name}.toml").write_text(f'name = "mini-{name}"\naddress = "{name}"\n')
    remove_machine(load_inventory(tmp_path), "mini-a")
    assert [node.name for node in load_inventory(tmp_path).nodes] == ["mini-b"]


def test_an_unknown_machine_is_answered_with_those_that_exist(tmp_path):
    add_machine(Inventory(folder=tmp_path), "mini-1", "a")
    ended = machines(tmp_path, "show", "mini-2")
    assert ended.returncode == 2
    assert "there is no machine 'mini-2'" in ended.stderr
    assert "there are: mini-1" in ended.stderr


def test_the_latest_report_of_a_machine_counts_and_the_same_one_is_kept_once(tmp_path):
    name = NodeName("m")
    first, second = (MachineReported(machine=name, facts={"chip": chip}, build_hash="b") for chip in ("A", "B"))
    for event in (first, first, second):
        append_reports(tmp_path, [event])
    assert read_reports(tmp_path) == {"m": second}
    with Ledger(tmp_path, read_only=True) as ledger:
        assert len(ledger.machine_records()) == 2
