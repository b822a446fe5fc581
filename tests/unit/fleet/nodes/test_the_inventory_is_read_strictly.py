"""Machine files are strict, may be absent, and each gives one node with its own name."""

from __future__ import annotations

import pytest

from fleet.errors import UsageError
from fleet.nodes.load import load_nodes
from fleet.nodes.node import LABEL_PATTERN, this_machine

MACHINE = 'name = "studio-1"\naddress = "bench@192.0.2.10"\n[labels]\nchip = "M4-Max"\nmemory_gb = 64\n'


def test_no_folder_and_an_empty_folder_hold_no_machines(tmp_path):
    assert load_nodes(tmp_path / "none") == ()
    assert load_nodes(tmp_path) == ()


def test_a_machine_has_its_name_address_and_labels(tmp_path):
    (tmp_path / "studio.toml").write_text(MACHINE)
    (node,) = load_nodes(tmp_path)
    assert (node.name, node.address, dict(node.labels)) == (
        "studio-1",
        "bench@192.0.2.10",
        {"chip": "M4-Max", "memory_gb": 64},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MACHINE.replace("address", "adress"), "unknown key 'adress'"),
        (MACHINE.replace("M4-Max", "M4 Max"), "labels.chip is 'M4 Max'"),
        (MACHINE.replace("studio-1", "studio 1"), "name is 'studio 1'"),
        ('name = "a"\n', "the key 'address' is missing"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(tmp_path, text, expected):
    (tmp_path / "studio.toml").write_text(text)
    with pytest.raises(UsageError, match=r"studio\.toml") as caught:
        load_nodes(tmp_path)
    assert expected in caught.value.message


def test_two_machines_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.toml").write_text(MACHINE)
    (tmp_path / "b.toml").write_text(MACHINE)
    with pytest.raises(UsageError, match=r"b\.toml: the name 'studio-1' is taken by .*a\.toml"):
        load_nodes(tmp_path)


def test_this_machine_has_a_name_that_can_be_a_label():
    assert LABEL_PATTERN.fullmatch(this_machine().name)
