"""What is run on a machine arrives there word for word, whatever it holds; what ssh says is told with its remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cluster.ssh import Output, explain_command, explain_ssh, ssh_argv
from fleet.nodes.node import Node, NodeName, NodePaths, SshTarget

NODE = Node(
    name=NodeName("mini-1"),
    address="192.0.2.7",
    ssh=SshTarget(user="bench", port=2222, key=Path("/k"), known_hosts=Path('/a "b" 100%/known'), connect_timeout_s=7),
)
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(WORDS, st.sampled_from(["$(id)", "; id", "a b", "'", '"', "`id`", "~", "*", "", "\n"])), max_size=4
    )
)
def test_a_shell_at_the_other_end_sees_exactly_the_words(words):
    command = ssh_argv(NODE, ["printf", "%s\\0", *words, "end"])[-1]
    printed = subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True).stdout
    assert printed.decode() == "".join(f"{word}\0" for word in [*words, "end"])


def test_the_inventory_s_values_are_options_of_ssh_and_the_address_can_be_none():
    argv = ssh_argv(NODE, ["true"])
    assert argv[-3:] == ["--", "192.0.2.7", "true"]
    options = [argv[place + 1] for place, word in enumerate(argv) if word == "-o"]
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=7", 'IdentityFile="/k"'} <= set(options)
    assert 'UserKnownHostsFile="/a \\"b\\" 100%%/known"' in options
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[argv.index("-l") + 1] == "bench"


def test_ssh_reads_these_options_as_they_were_meant():
    argv = ssh_argv(NODE, ["true"])
    read = subprocess.run(["ssh", "-G", *argv[1:-1]], check=True, capture_output=True, text=True).stdout.splitlines()
    assert 'userknownhostsfile /a "b" 100%/known' in [line.replace("%%", "%").replace("\\", "") for line in read]
    assert "identityfile /k" in read
    assert "user bench" in read


@pytest.mark.parametrize(
    ("said", "trouble", "message", "hint"),
    [
        ("ssh: connect to host h port 22: Connection refused", "unreachable", "Connection refused", "Remote Login"),
        ("ssh: connect to host h port 22: No route to host", "unreachable", "No route to host", "is it on"),
        ("ssh: connect to host h port 22: Connection timed out", "unreachable", "timed out", "awake"),
        (
            "ssh: Could not resolve hostname h: Name or service not known",
            "unreachable",
            "resolve",
            "correct the address",
        ),
        (
            "@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@\nHost key verification failed.",
            "host key",
            "another",
            "-R",
        ),
        (
            "No ED25519 host key is known for h and you have requested strict checking.",
            "host key",
            "not known",
            "fingerprint",
        ),
        (
            "bench@h: Permission denied (publickey).",
            "permission",
            "does not let us in",
            "ssh-copy-id -p 2222 bench@192.0.2.7",
        ),
        ("something else", "failed", "ssh failed: something else", "try: ssh -p 2222"),
        ("", "failed", "no message", "try: ssh"),
    ],
)
def test_what_ssh_says_is_told_with_its_remedy(said, trouble, message, hint):
    error = explain_ssh(NODE, said)
    assert error.trouble == trouble
    assert error.message.startswith("mini-1: ")
    assert message in error.message
    assert hint in error.hint
    assert error.exit_code == 3


@pytest.mark.parametrize(
    ("status", "stderr", "trouble"),
    [
        (1, "cat: write error: No space left on device", "disk full"),
        (127, "sh: uv: not found", "missing command"),
        (2, "x", "failed"),
    ],
)
def test_a_command_that_fails_is_told_with_its_kind(status, stderr, trouble):
    error = explain_command(NODE, "writing /a", "uv", Output(status=status, stdout="", stderr=stderr))
    assert error.trouble == trouble
    assert "writing /a" in error.message


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_characters="\0/\n", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_a_root_of_any_characters_is_one_place(name):
    node = Node(name=NodeName("n"), address="h", paths=NodePaths(root=f"/tmp/{name}"))
    command = ssh_argv(node, ["/bin/sh", "-c", 'printf %s "$1"', "x", node.paths.root])[-1]
    assert subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True).stdout.decode() == f"/tmp/{name}"
