"""The node's process on a machine: started, asked, ended. Linux: a detached process. macOS: a LaunchDaemon.

A LaunchDaemon, because an agent's connections in the local network are blocked there, and Interactive, because a
background process is slowed down by a factor of eight. It needs root once, to be installed.
"""

from __future__ import annotations

import json
import plistlib
import shlex
from typing import Any

from fleet.cluster.node_process import NodeConfig
from fleet.cluster.ssh import Ssh, SshError
from fleet.cluster.survey import Survey

DAEMONS = "/Library/LaunchDaemons"
STOP_TIMEOUT_S = 90.0


def label(name: str) -> str:
    return f"mlx-fleet.node.{name}"


def plist(config: NodeConfig, *, user: str, home: str) -> bytes:
    """The LaunchDaemon of a node."""
    root = config.root
    return plistlib.dumps(
        {
            "Label": label(config.name),
            "ProgramArguments": [
                f"{root}/venv/bin/python",
                "-m",
                "fleet.cluster.node_process",
                f"{root}/node.json",
            ],
            "UserName": user,
            "WorkingDirectory": root,
            "EnvironmentVariables": {"HOME": home, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin:/opt/homebrew/bin"},
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": 15,
            "ProcessType": "Interactive",
            "Nice": 0,
            "StandardOutPath": f"{root}/start.log",
            "StandardErrorPath": f"{root}/start.log",
        }
    )


def node_status(ssh: Ssh, seen: Survey) -> dict[str, Any] | None:
    """What the node's own process says of itself, or None when there is no node that can be asked."""
    if not seen.node:
        return None
    output = ssh.run(_command(seen.root, "--status"))
    return parse_object(output.stdout) if output.status == 0 else None


def probe_argv(root: str) -> list[str]:
    """The command with which a machine says what it is."""
    return [f"{root}/venv/bin/python", "-m", "worker.cli", "probe"]


def start(ssh: Ssh, seen: Survey, config: NodeConfig) -> None:
    """Start the node's process, which no other may hold. Raises: SshError."""
    if seen.is_mac:
        _bootstrap(ssh, seen, config)
        return
    ssh.check(_command(seen.root, "--detach"), what="starting the node")


def stop(ssh: Ssh, seen: Survey) -> bool:
    """End the node's process with all it started; whether there was one. Raises: SshError when something is left."""
    name = ssh.node.name
    if seen.is_mac:
        _boot_out(ssh, seen, name)
    if not seen.node:
        return False
    printed = ssh.check(_command(seen.root, "--stop"), what="ending the node", timeout_s=STOP_TIMEOUT_S)
    answer = parse_object(printed) or {"ran": False, "left": ["(its answer could not be read)"]}
    if answer["left"]:
        raise SshError(
            f"{name}: still runs from {seen.root}: {', '.join(answer['left'])}", f"end it there, then fleet down {name}"
        )
    return bool(answer["ran"])


def _command(root: str, mode: str) -> list[str]:
    return [f"{root}/venv/bin/python", "-m", "fleet.cluster.node_process", mode, f"{root}/node.json"]


def _bootstrap(ssh: Ssh, seen: Survey, config: NodeConfig) -> None:
    """Not verified on a Mac."""
    draft, path = f"{seen.root}/{label(config.name)}.plist", f"{DAEMONS}/{label(config.name)}.plist"
    ssh.put(plist(config, user=seen.user, home=seen.home), draft, mode=0o644)
    install = ["/usr/bin/install", "-o", "root", "-g", "wheel", "-m", "644", draft, path]
    load = ["/bin/launchctl", "bootstrap", "system", path]
    if not seen.sudo:
        typed = " && ".join("sudo " + shlex.join(argv) for argv in (install, load))
        raise SshError(
            f"{config.name}: installing its LaunchDaemon needs root, and sudo asks for a password there",
            f"type once on that Mac: {typed}; then fleet up {config.name}",
            "permission",
        )
    ssh.check(["sudo", "-n", *install], what="installing the LaunchDaemon")
    ssh.check(["sudo", "-n", *load], what="loading the LaunchDaemon")


def _boot_out(ssh: Ssh, seen: Survey, name: str) -> None:
    """Not verified on a Mac. A daemon that is not loaded is no failure."""
    path = f"{DAEMONS}/{label(name)}.plist"
    there = ssh.run(["/bin/test", "-e", path]).status == 0
    if there and not seen.sudo:
        raise SshError(
            f"{name}: unloading its LaunchDaemon needs root, and sudo asks for a password there",
            f"type on that Mac: sudo launchctl bootout system/{label(name)}; sudo rm {path}",
            "permission",
        )
    if there:
        ssh.run(["sudo", "-n", "/bin/launchctl", "bootout", f"system/{label(name)}"])
        ssh.check(["sudo", "-n", "/bin/rm", "-f", path], what="removing the LaunchDaemon")


def parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
