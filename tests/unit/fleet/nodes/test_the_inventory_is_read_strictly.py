"""An inventory is strict, may be absent, and each machine file gives one node with its own name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import UsageError
from fleet.nodes.inventory import Head, find_inventory, load_inventory
from fleet.nodes.load import load_nodes
from fleet.nodes.node import LABEL_PATTERN, MAX_SOCKET_BYTES, SOCKET_SUFFIX, Node, NodeName, this_machine

MACHINE = """name = "studio-1"
address = "192.0.2.10"
tags = ["lab", "desk"]
optional = true
offline = true
python = "3.12.7"
window = "22:00-07:00"
pause = "the fan is broken"
[ssh]
user = "bench"
port = 2222
[paths]
root = "/Volumes/Fast SSD/fleet"
ray_temp = "/tmp/fr_x"
"""
REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "machines").mkdir()
    return tmp_path


def write(folder: Path, text: str, name: str = "studio") -> None:
    (folder / "machines" / f"{name}.toml").write_text(text)


def test_no_folder_and_an_empty_folder_hold_no_machines(tmp_path):
    assert load_nodes(tmp_path / "none") == ()
    assert load_inventory(tmp_path).nodes == ()


def test_the_example_inventory_holds_no_machines_and_the_default_head():
    inventory = load_inventory(REPOSITORY / "inventory")
    assert (inventory.nodes, inventory.head, inventory.store) == ((), Head(), None)


def test_a_machine_has_what_its_file_says(folder):
    write(folder, MACHINE)
    (node,) = load_inventory(folder).nodes
    assert (node.name, node.address, node.tags) == ("studio-1", "192.0.2.10", ("lab", "desk"))
    assert (node.optional, node.offline, node.python) == (True, True, "3.12.7")
    assert (node.window, node.pause) == ("22:00-07:00", "the fan is broken")
    assert (node.ssh.user, node.ssh.port, node.ssh.connect_timeout_s) == ("bench", 2222, 10)
    assert (node.paths.root, node.ray_temp) == ("/Volumes/Fast SSD/fleet", "/tmp/fr_x")


def test_a_machine_that_says_little_has_defaults_and_its_file_s_name(folder):
    write(folder, 'address = "mini"\n', name="mini-1")
    (node,) = load_inventory(folder).nodes
    assert (node.name, node.paths.root, node.ray_temp) == ("mini-1", "~/.mlx-fleet", "/tmp/fr_mini-1")


def test_the_fleet_file_s_ssh_is_the_default_of_every_machine(folder):
    (folder / "fleet.toml").write_text('[ssh]\nuser = "all"\nport = 22\nkey = "/keys/k"\nconnect_timeout_s = 3\n')
    write(folder, MACHINE)
    (node,) = load_inventory(folder).nodes
    assert (node.ssh.user, node.ssh.port, node.ssh.key, node.ssh.connect_timeout_s) == (
        "bench",
        2222,
        Path("/keys/k"),
        3,
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("address", "adress", "unknown key 'adress'"),
        ('"studio-1"', '"studio 1"', "name is 'studio 1': use at most 63"),
        ('"192.0.2.10"', '"bench@192.0.2.10"', "the user as ssh.user"),
        ('"192.0.2.10"', '"-oProxyCommand=x"', "address is '-oProxyCommand=x'"),
        ('address = "192.0.2.10"\n', "", "the key 'address' is missing"),
        ('"lab"', '"a b"', "tags[0] is 'a b'"),
        ("2222", "70000", "ssh.port is 70000: expected a port"),
        ("2222", '"2222"', "ssh.port is '2222'"),
        ('"bench"', '"a;b"', "ssh.user is 'a;b'"),
        ('"/tmp/fr_x"', '"/tmp/' + "x" * 40 + '"', "at most 31 bytes"),
        ('"/Volumes/Fast SSD/fleet"', '"fleet"', "begins with / or ~/"),
        ('"/Volumes/Fast SSD/fleet"', '"/a\\nb"', "printable"),
        ('"3.12.7"', '"3.9"', "python is '3.9'"),
        ('"22:00-07:00"', '"22:00"', "window is '22:00'"),
        ('"22:00-07:00"', '"22:00-07:00"\ndays = "mon-fry"', "days is 'mon-fry'"),
        ('"22:00-07:00"', '"22:00-07:00"\ntimezone = "Mars/Base"', "Mars/Base"),
        ('window = "22:00-07:00"', 'days = "mon"', "say when a window opens"),
        ("[ssh]", "[ssh", "line 9"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_is_allowed(folder, old, new, expected):
    write(folder, MACHINE.replace(old, new, 1))
    with pytest.raises(UsageError, match=r"studio\.toml") as caught:
        load_inventory(folder)
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[head]\nport = 20500\n", "head.port 20500 is inside head.port_range"),
        ("[head]\nport_range = [30000]\n", "room for 20 ports"),
        ('[ssh]\noptions = "-v"\n', "unknown key 'ssh.options'"),
        ("[head]\nport = 1" + "0" * 5000 + "\n", "not a TOML file"),
        ("[head]\nport = " + "[" * 5000 + "\n", "nested too deeply"),
    ],
)
def test_a_mistake_in_the_fleet_file_is_named_too(tmp_path, text, expected):
    (tmp_path / "fleet.toml").write_text(text)
    with pytest.raises(UsageError, match=r"fleet\.toml") as caught:
        load_inventory(tmp_path)
    assert expected in caught.value.message


@pytest.mark.parametrize(("first", "second"), [("Studio-1", "studio-1"), ("studio-1", "Studio-1")])
def test_two_machines_of_one_name_are_refused_whatever_the_case(folder, first, second):
    write(folder, MACHINE.replace("studio-1", first), "a")
    write(folder, MACHINE.replace("studio-1", second), "b")
    with pytest.raises(UsageError, match=rf"b\.toml: the name '{second}' is taken by .*a\.toml"):
        load_inventory(folder)


def test_two_machines_in_one_place_are_refused(folder):
    write(folder, MACHINE, "a")
    write(folder, MACHINE.replace("studio-1", "studio-2"), "b")
    with pytest.raises(UsageError, match="studio-1 and studio-2 are one"):
        load_inventory(folder)


def test_an_inventory_is_found_by_flag_then_here_then_in_the_data_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    assert find_inventory(None, data) == data / "inventory"
    (tmp_path / "inventory").mkdir()
    assert find_inventory(None, data) == data / "inventory"
    (tmp_path / "inventory" / "fleet.toml").touch()
    assert find_inventory(None, data) == tmp_path / "inventory"
    assert find_inventory(tmp_path, data) == tmp_path
    with pytest.raises(UsageError, match="no such inventory"):
        find_inventory(tmp_path / "other", data)


def test_this_machine_has_a_name_that_can_be_a_label():
    assert LABEL_PATTERN.fullmatch(this_machine().name)


@pytest.mark.parametrize("length", range(1, 64))
def test_the_default_place_of_ray_leaves_room_for_its_sockets(length):
    name = "m" * length
    temp = Node(name=NodeName(name), address="h").ray_temp
    assert len(f"/private{temp}{SOCKET_SUFFIX}".encode()) <= MAX_SOCKET_BYTES


_KEYS = st.sampled_from(
    [
        "name",
        "address",
        "tags",
        "optional",
        "python",
        "offline",
        "ssh",
        "paths",
        "ssh.port",
        "ssh.user",
        "paths.root",
        "paths.ray_temp",
        "head",
        "head.port",
        "head.port_range",
        "adress",
        "'x'",
        "[ssh]",
        "[[paths]]",
    ]
)
_VALUES = st.one_of(
    st.sampled_from(
        [
            "1",
            "-1",
            "1e999",
            "nan",
            "true",
            "[]",
            "[1,2]",
            "{}",
            "{port=1}",
            '"a"',
            '"-a"',
            '"~"',
            '"\\u0000"',
            '""',
            "1979-05-27",
            '"""',
            "[[1]]",
            "0x",
            '"~nobody/x"',
            '"/a/../b"',
            "{ssh={ssh=1}}",
        ]
    ),
    st.sampled_from(["9" * 5000, "[" * 2000]),
    st.text(max_size=20),
)
_LINES = st.one_of(st.builds("{} = {}".format, _KEYS, _VALUES), st.text(max_size=20), _KEYS)


@settings(max_examples=500, deadline=None)
@given(st.lists(_LINES, max_size=5), st.lists(_LINES, max_size=5), st.binary(max_size=6))
def test_an_inventory_of_anything_is_read_or_refused_in_words(tmp_path_factory, fleet, machine, raw):
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "machines").mkdir()
    (folder / "fleet.toml").write_bytes("\n".join(fleet).encode("utf-8", "surrogatepass") + raw)
    (folder / "machines" / "m.toml").write_bytes("\n".join(machine).encode("utf-8", "surrogatepass") + raw)
    for read in (load_inventory, lambda folder: load_nodes(folder / "machines")):
        message = refusal(read, folder)
        assert message is None or (".toml" in message and "\n" not in message)


def refusal(read, folder: Path) -> str | None:
    try:
        read(folder)
    except UsageError as error:
        return error.message
    return None
