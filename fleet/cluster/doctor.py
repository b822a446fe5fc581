"""Every known trap as a check: what was found, whether it is right, and what mends it.

Looking (over ssh) and judging are apart: `examine` is a pure function of what was seen, so that a Mac's traps are tested
without one.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleet.cluster import service
from fleet.cluster.daemon import is_alive, read_cluster
from fleet.cluster.install import MIN_FREE_BYTES, Build, this_build
from fleet.cluster.join import CLOCK_LIMIT_S
from fleet.cluster.ssh import Ssh, SshError
from fleet.cluster.survey import Survey, survey
from fleet.nodes.inventory import Head
from fleet.nodes.node import RAY_TEMP_MAX_BYTES, Node, NodeName

Level = Literal["ok", "warning", "problem", "unknown"]
HEAD = NodeName("(head)")
OWNER_ONLY = "-rw-------"
RAY_LEFT = Path("/tmp/ray/ray_current_cluster")  # noqa: S108 - Ray's own place, where a bare ray.init() looks
_GIB = 2**30
_LOOPBACK = ("127.", "localhost", "::1")

_LOOK = """
ls -ln "$1/token" 2>/dev/null | cut -c1-10
echo "daemon: $(/bin/launchctl print "system/$2" 2>/dev/null | grep -c 'state = running')"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check. `remedy` is empty when it is ok."""

    check: str
    level: Level
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings of one machine."""

    machine: NodeName
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that was looked at on a machine; None where nobody could be asked."""

    survey: Survey
    status: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    token_mode: str | None = None
    daemon_runs: bool | None = None
    python_found: bool | None = None


def diagnose(nodes: Sequence[Node], *, data: Path, head: Head) -> list[Diagnosis]:
    """Look at the head and at these machines, side by side."""
    build = this_build()

    def one(node: Node) -> Diagnosis:
        try:
            seen = look(node, build)
        except SshError as error:
            level: Level = "warning" if node.optional and error.trouble == "unreachable" else "problem"
            findings = [Finding(check="ssh", level=level, detail=error.message, remedy=error.hint)]
        else:
            findings = list(examine(node, seen, build, head))
        return Diagnosis(machine=node.name, findings=tuple(findings))

    with ThreadPoolExecutor(16, thread_name_prefix="doctor") as pool:
        return [examine_head(nodes, data, head), *pool.map(one, nodes)]


def look(node: Node, build: Build) -> Seen:
    """Raises: SshError when the machine is not reached."""
    ssh = Ssh(node)
    seen = survey(ssh)
    status = service.node_status(ssh, seen)
    mode, _, daemon = ssh.run(["/bin/sh", "-c", _LOOK, "look", seen.root, service.label(node.name)]).stdout.partition(
        "daemon: "
    )
    wanted = node.python or build.python
    found = None
    if seen.uv and status is None:
        found = ssh.run([seen.uv, "python", "find", "--no-project", "--offline", wanted]).status == 0
    return Seen(
        survey=seen,
        status=status,
        facts=_facts(ssh, seen) if status is not None else {},
        token_mode=mode.strip() or None,
        daemon_runs=daemon.strip() not in ("", "0") if seen.is_mac else None,
        python_found=found,
    )


def examine(node: Node, seen: Seen, build: Build, head: Head) -> Iterator[Finding]:
    """Judge what was seen of one machine."""
    look = seen.survey
    yield _ok("ssh", f"{look.user} at {node.address}")
    yield from _clock(look)
    yield from _space(look)
    yield from _tools(node, seen, build)
    yield from _node(node, seen, build, head)
    yield from _ray(node, look)
    if look.is_mac:
        yield from _mac(node, seen)


def examine_head(nodes: Sequence[Node], data: Path, head: Head) -> Diagnosis:
    """Judge the head on this machine."""
    return Diagnosis(machine=HEAD, findings=tuple(_head(nodes, data, head)))


def _head(nodes: Sequence[Node], data: Path, head: Head) -> Iterator[Finding]:
    info = read_cluster(data)
    if info and is_alive(info):
        yield _ok("head", f"listens at {info.address}")
    else:
        yield Finding(check="head", level="problem", detail="it does not run", remedy="fleet up")
    far = [node.name for node in nodes if node.address and not node.address.startswith(_LOOPBACK)]
    if far and head.address.startswith(_LOOPBACK):
        detail = f"{head.address} is this machine only, and {far[0]} is another"
        remedy = "set head.address in fleet.toml to an address of this machine that the others reach"
        yield Finding(check="address", level="problem", detail=detail, remedy=remedy)
    if info and info.token.is_file():
        mode = stat.S_IMODE(info.token.stat().st_mode)
        yield _judge("token", mode & 0o077 == 0, f"mode {mode:o}", f"chmod 600 {info.token}")
    if RAY_LEFT.exists():
        yield _left_behind()


def _clock(look: Survey) -> Iterator[Finding]:
    off = abs(look.clock_off_s) <= CLOCK_LIMIT_S + look.clock_error_s
    yield _judge("clock", off, f"{look.clock_off_s:+.1f} s off the head's", "turn on its network time", "warning")


def _space(look: Survey) -> Iterator[Finding]:
    remedy = f"let {look.user} write there, or set paths.root in the machine's file"
    yield _judge("root", look.writable, f"{look.root} (below {look.below})", remedy)
    if look.free_bytes is None:
        yield Finding(check="disk", level="unknown", detail="df could not be read", remedy="look at it there")
        return
    needed = MIN_FREE_BYTES if look.installed is None else MIN_FREE_BYTES // 10
    free = f"{look.free_bytes / _GIB:.1f} GiB free at {look.below}"
    yield _judge("disk", look.free_bytes >= needed, free, f"free {needed / _GIB:.1f} GiB, or set paths.root")


def _tools(node: Node, seen: Seen, build: Build) -> Iterator[Finding]:
    look, wanted = seen.survey, node.python or build.python
    fetchable = look.python is not None and not node.offline
    level: Level = "ok" if look.uv else "warning" if fetchable else "problem"
    detail = look.uv or ("missing; fleet up fetches it" if fetchable else "missing")
    yield Finding(
        check="uv", level=level, detail=detail, remedy="" if look.uv else f"put uv at {look.root}/tools/bin/uv"
    )
    if seen.python_found is False:
        level = "problem" if node.offline else "warning"
        remedy = f"run there: uv python install {wanted}"
        yield Finding(check="python", level=level, detail=f"{wanted} is not there yet", remedy=remedy)
    else:
        yield _ok("python", wanted)


def _node(node: Node, seen: Seen, build: Build, head: Head) -> Iterator[Finding]:
    look, up = seen.survey, f"fleet up {node.name}"
    mark = build.mark(node.python)
    yield _judge("build", look.installed == mark, "the head's" if look.installed == mark else "another, or none", up)
    if seen.token_mode is not None:
        yield _judge("token", seen.token_mode == OWNER_ONLY, seen.token_mode, f"chmod 600 {look.root}/token there")
    status = seen.status
    if status is None:
        yield Finding(check="node", level="problem", detail="it was never started", remedy=up)
        return
    running = bool(status.get("running"))
    yield _judge("node", running, f"process {status.get('pid')}" if running else "it does not run", up)
    reached = bool(status.get("head_answers"))
    remedy = f"open ports {head.port} and {head.ports[0]}-{head.ports[1]} between them"
    if look.is_mac:
        remedy += "; a Mac blocks agents in the local network: Settings, Privacy & Security, Local Network"
    yield _judge("head from there", reached, f"port {head.port} of the head", remedy)
    if running:
        yield _judge("ray", bool(status.get("ray_processes")), f"{status.get('ray_processes')} processes", up)
        nice = status.get("niceness")
        yield _judge("niceness", nice == 0, str(nice), "start it from a shell with niceness 0", "warning")


def _ray(node: Node, look: Survey) -> Iterator[Finding]:
    length = len(node.ray_temp.encode())
    fits = length <= RAY_TEMP_MAX_BYTES
    yield _judge(
        "socket path", fits, f"{node.ray_temp}, {length} bytes", f"at most {RAY_TEMP_MAX_BYTES}: paths.ray_temp"
    )
    if look.ray_left:
        yield _left_behind()


def _mac(node: Node, seen: Seen) -> Iterator[Finding]:
    """Not verified on a Mac."""
    minutes = seen.survey.sleep_min
    if minutes is None:
        yield Finding(check="sleep", level="unknown", detail="pmset could not be read", remedy="sudo pmset -a sleep 0")
    else:
        yield _judge(
            "sleep", minutes == 0, f"after {minutes} min" if minutes else "never", "sudo pmset -a sleep 0", "warning"
        )
    loaded = bool(seen.daemon_runs)
    yield _judge(
        "daemon", loaded, service.label(node.name) + (" runs" if loaded else " is not loaded"), f"fleet up {node.name}"
    )
    tag, version = seen.facts.get("mlx_wheel_tag"), seen.facts.get("os_version")
    if isinstance(tag, str) and isinstance(version, str):
        major = version.split(".")[0]
        matches = f"macosx_{major}_" in tag
        remedy = "MLX has a wheel for each macOS; bring it up again after an upgrade of macOS"
        yield _judge("mlx wheel", matches, f"{tag} on macOS {version}", remedy, "warning")


def _facts(ssh: Ssh, seen: Survey) -> Mapping[str, Any]:
    output = ssh.run(service.probe_argv(seen.root), timeout_s=120)
    return service.parse_object(output.stdout) or {}


def _left_behind() -> Finding:
    return Finding(
        check="other Ray",
        level="warning",
        detail=f"{RAY_LEFT} is left from another Ray",
        remedy="end that Ray, or remove the file",
    )


def _ok(check: str, detail: str) -> Finding:
    return Finding(check=check, level="ok", detail=detail)


def _judge(check: str, good: bool, detail: str, remedy: str, otherwise: Level = "problem") -> Finding:
    return Finding(check=check, level="ok" if good else otherwise, detail=detail, remedy="" if good else remedy)
