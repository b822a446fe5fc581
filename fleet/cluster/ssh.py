"""A machine over the system's ssh: run a command there, put a file there. The only place that starts ssh.

Keys, agents and `~/.ssh/config` are ssh's own business; it may never ask a question, and never trusts a host by itself.
Every word of a command is quoted for the shell at the other end. A failure says what is wrong and how to mend it.
"""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.cluster.last_words import last_line
from fleet.errors import ClusterError
from fleet.nodes.node import Node

SshTrouble = Literal["unreachable", "host key", "permission", "missing command", "disk full", "failed"]
SSH_FAILED = 255
"""The status with which ssh itself failed; a command's own statuses are lower."""
COMMAND_MISSING = 127

_PUT = """set -e
umask 077
part="$1.part.$$"
trap 'rm -f "$part"' EXIT
cat > "$part"
[ "$(wc -c < "$part")" -eq "$3" ] || { echo "the copy of $1 was cut short" >&2; exit 1; }
chmod "$2" "$part"
mv -f "$part" "$1"
"""


class SshError(ClusterError):
    """Something could not be done on a machine. `trouble` is its kind."""

    def __init__(self, message: str, hint: str = "", trouble: SshTrouble = "failed") -> None:
        super().__init__(message, hint)
        self.trouble = trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a command ended and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        return last_line(self.stderr) or last_line(self.stdout, f"status {self.status}, and no message")


class Ssh:
    """One machine. Each call is a connection of its own; calls may come from several threads."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> Output:
        """Run a command and return how it ended, whatever its status.

        Raises: SshError when the machine is not reached, does not let us in, or takes longer than `timeout_s`.
        """
        try:
            done = subprocess.run(
                ssh_argv(self.node, argv),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"{self.node.name}: {argv[0]} did not end within {timeout_s:g} s"
            raise SshError(message, "is the machine asleep, or its disk very slow?", "unreachable") from None
        except OSError as error:
            raise SshError(f"ssh could not be started: {error.strerror}", "install OpenSSH's client") from error
        output = Output(
            status=done.returncode,
            stdout=done.stdout.decode("utf-8", errors="replace"),
            stderr=done.stderr.decode("utf-8", errors="replace"),
        )
        if output.status == SSH_FAILED:
            raise explain_ssh(self.node, output.stderr)
        return output

    def check(self, argv: Sequence[str], *, what: str, stdin: bytes | None = None, timeout_s: float = 60.0) -> str:
        """Run a command that must succeed; return what it printed. `what` says in a message what was being done.

        Raises: SshError.
        """
        output = self.run(argv, stdin=stdin, timeout_s=timeout_s)
        if output.status != 0:
            raise explain_command(self.node, what, argv[0], output)
        return output.stdout

    def put(self, content: bytes, to: str, *, mode: int = 0o600, timeout_s: float = 600.0) -> None:
        """Write a file there, whole or not at all; nobody else can read it meanwhile. Raises: SshError."""
        argv = ["/bin/sh", "-c", _PUT, "put", to, f"{mode:o}", str(len(content))]
        self.check(argv, what=f"writing {to}", stdin=content, timeout_s=timeout_s)


def ssh_argv(node: Node, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` on a node."""
    ssh = node.ssh
    assert node.address is not None
    options = [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        f"ConnectTimeout={ssh.connect_timeout_s}",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=4",
        "ClearAllForwardings=yes",
    ]
    if ssh.known_hosts is not None:
        options += [f"UserKnownHostsFile={_ssh_quoted(str(ssh.known_hosts))}", "GlobalKnownHostsFile=/dev/null"]
    if ssh.key is not None:
        options += [f"IdentityFile={_ssh_quoted(str(ssh.key))}", "IdentitiesOnly=yes"]
    return [
        "ssh",
        "-T",
        *(word for option in options for word in ("-o", option)),
        *(("-p", str(ssh.port)) if ssh.port is not None else ()),
        *(("-l", ssh.user) if ssh.user is not None else ()),
        "--",
        node.address,
        shlex.join(argv),
    ]


def _ssh_quoted(path: str) -> str:
    """A path as ssh's configuration reads it: quoted for its spaces, percent signs doubled."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def explain_ssh(node: Node, stderr: str) -> SshError:
    """What ssh's own failure means, and what mends it."""
    name, text = node.name, stderr.lower()
    where = f"{node.address}" + (f":{node.ssh.port}" if node.ssh.port else "")
    said = last_line(stderr, "no message")
    port = f"-p {node.ssh.port} " if node.ssh.port else ""
    if "remote host identification has changed" in text:
        hint = f"if the machine was set up anew: ssh-keygen -R {_known_name(node)}, then ssh {port}{node.address} once"
        return SshError(f"{name}: {where} shows another host key than the one known", hint, "host key")
    if "host key" in text and ("verification failed" in text or "is known" in text):
        hint = f"ssh {port}{node.address} once and compare the fingerprint, or set ssh.known_hosts"
        return SshError(f"{name}: the host key of {where} is not known", hint, "host key")
    if "permission denied" in text or "too many authentication failures" in text:
        user = f"{node.ssh.user}@" if node.ssh.user else ""
        hint = f"ssh-copy-id {port}{user}{node.address}, or set ssh.user and ssh.key; turn on Remote Login on a Mac"
        return SshError(f"{name}: {where} does not let us in: {said}", hint, "permission")
    if "identity file" in text and "no such file" in text:
        return SshError(f"{name}: {said}", "set ssh.key to a key that exists", "permission")
    hints = [
        ("could not resolve", "correct the address in the machine's file"),
        ("connection refused", "is Remote Login (sshd) on there, and ssh.port right?"),
        ("no route to host", "is it on, and in this network?" + _local_network_hint()),
        ("timed out", "is it on and awake? a firewall may be in between"),
        ("unreachable", "check the network"),
        ("connection reset", "try again"),
        ("connection closed", "try again; its sshd may refuse us (see its log)"),
        ("broken pipe", "try again"),
    ]
    for sign, hint in hints:
        if sign in text:
            return SshError(f"{name}: {where} is not reached: {said}", hint, "unreachable")
    return SshError(f"{name}: ssh failed: {said}", f"try: ssh {port}{node.address}")


def explain_command(node: Node, what: str, command: str, output: Output) -> SshError:
    """What a command's failure means, and what mends it."""
    if "no space left" in output.stderr.lower():
        hint = "free some space there, or set paths.root to another disk"
        return SshError(f"{node.name}: the disk is full while {what}", hint, "disk full")
    if output.status == COMMAND_MISSING:
        return SshError(f"{node.name}: {command} is missing there, for {what}", "install it", "missing command")
    return SshError(f"{node.name}: {what} failed: {output.last_words}", f"see fleet doctor {node.name}")


def _known_name(node: Node) -> str:
    return f"'[{node.address}]:{node.ssh.port}'" if node.ssh.port not in (None, 22) else str(node.address)


def _local_network_hint() -> str:
    if platform.system() != "Darwin":
        return ""
    return " macOS may block this program: Settings, Privacy & Security, Local Network"
