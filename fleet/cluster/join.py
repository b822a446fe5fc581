"""Bring machines into the cluster and out of it, over ssh, side by side: one that fails never stops the others.

Each step looks first and changes only what differs, so that doing it again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from fleet.cluster import service
from fleet.cluster.daemon import ClusterInfo, attached, ensure_head, present_ids
from fleet.cluster.install import Build, check_machine, install, is_installed, this_build
from fleet.cluster.node_process import LOG_FILE, NodeConfig
from fleet.cluster.ssh import Ssh, SshError
from fleet.cluster.survey import Survey, survey
from fleet.errors import ClusterError, FleetError
from fleet.ledger.events import MachineReported
from fleet.nodes.inventory import Head
from fleet.nodes.node import Node, NodeName

CLOCK_LIMIT_S = 5.0
JOIN_DEADLINE_S = 120.0
MAX_AT_ONCE = 16
_POLL_S = 0.5

Say = Callable[[NodeName, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The machine is in the cluster. `changed`: what had to be done for that; nothing when it was already."""

    machine: NodeName
    changed: tuple[str, ...]
    report: MachineReported


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """An optional machine that is not reached."""

    machine: NodeName
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The machine could not be brought up, or down."""

    machine: NodeName
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """Nothing of the fleet runs there. `ran`: something did."""

    machine: NodeName
    ran: bool


class _Roll:
    """Who is present, asked in one thread and waited for in others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._present: dict[NodeName, frozenset[str]] = {}

    def call(self) -> None:
        now = present_ids()
        with self._changed:
            self._present = now
            self._changed.notify_all()

    def ids(self, name: NodeName) -> frozenset[str]:
        with self._changed:
            return self._present.get(name, frozenset())

    def wait_for_other(self, name: NodeName, known: frozenset[str], timeout_s: float) -> bool:
        """Wait until the machine is present under an id that is not among those known."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._present.get(name, frozenset()) - known), timeout_s)


Answer = TypeVar("Answer")


def bring_up(
    nodes: Sequence[Node], *, data: Path, head: Head, say: Say, deadline_s: float = JOIN_DEADLINE_S
) -> list[Ready | Absent | Broken]:
    """Start the head if need be, then bring up the machines side by side. The answers are in the order of `nodes`.

    Raises: ClusterError when the head can't be started or this installation is damaged; StorageError.
    """
    info = ensure_head(data, head)
    if not nodes:
        return []
    build, token = this_build(), info.token.read_bytes()
    roll = _Roll()
    with attached(info), ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="up") as pool:
        roll.call()
        joining = [_Joining(node, info, head, build, token, roll, say, deadline_s) for node in nodes]
        futures = [pool.submit(_answer, each.node, each.run) for each in joining]
        while not all(future.done() for future in futures):
            time.sleep(_POLL_S)
            roll.call()
    return [future.result() for future in futures]


def take_down(nodes: Sequence[Node], *, say: Say) -> list[Down | Absent | Broken]:
    """End what the fleet runs on these machines, side by side."""

    def one(node: Node) -> Down:
        ssh = Ssh(node)
        ran = service.stop(ssh, survey(ssh))
        say(node.name, "ended" if ran else "nothing ran")
        return Down(machine=node.name, ran=ran)

    with ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="down") as pool:
        futures = [pool.submit(_answer, node, partial(one, node)) for node in nodes]
        return [future.result() for future in futures]


def _answer(node: Node, work: Callable[[], Answer]) -> Answer | Absent | Broken:
    try:
        return work()
    except SshError as error:
        if node.optional and error.trouble == "unreachable":
            return Absent(machine=node.name, message=error.message)
        return Broken(machine=node.name, message=error.message, hint=error.hint)
    except FleetError as error:
        return Broken(machine=node.name, message=error.message, hint=error.hint)


class _Joining:
    """The way of one machine into the cluster."""

    def __init__(
        self,
        node: Node,
        info: ClusterInfo,
        head: Head,
        build: Build,
        token: bytes,
        roll: _Roll,
        say: Say,
        deadline_s: float,
    ) -> None:
        self.node = node
        self._info = info
        self._head = head
        self._build = build
        self._token = token
        self._roll = roll
        self._say: Callable[[str], None] = lambda text: say(node.name, text)
        self._deadline_s = deadline_s
        self._ssh = Ssh(node)

    def run(self) -> Ready:
        """Raises: ClusterError, SshError."""
        seen = survey(self._ssh)
        check_machine(self._ssh, seen)
        self._check_clock(seen)
        config = self._config(seen)
        status = service.node_status(self._ssh, seen)
        known = self._roll.ids(self.node.name)
        changed: list[str] = []
        if not is_installed(self._build, self._ssh, seen):
            self._end_old(seen, status)
            install(self._build, self._ssh, seen, self._say)
            changed.append("installed this build")
            status = None
        if not (status and status["running"] and status["current"]):
            self._start(seen, config, status)
            changed.append("started the node")
        self._wait(seen, known if changed else frozenset())
        report = self._report(seen)
        self._say(f"is up ({', '.join(changed) or 'nothing to change'})")
        return Ready(machine=self.node.name, changed=tuple(changed), report=report)

    def _check_clock(self, seen: Survey) -> None:
        if abs(seen.clock_off_s) > CLOCK_LIMIT_S + seen.clock_error_s:
            self._say(f"warning: its clock is {seen.clock_off_s:+.0f} s off; turn on its network time")

    def _config(self, seen: Survey) -> NodeConfig:
        return NodeConfig(
            name=self.node.name,
            head=self._info.address,
            root=seen.root,
            ray_temp=self.node.ray_temp,
            ports=self._head.ports,
            build=self._build.mark(self.node.python) + " " + _mark_of(self._token),
        )

    def _end_old(self, seen: Survey, status: object) -> None:
        if status is not None:
            self._say("ends the node of another build")
            service.stop(self._ssh, seen)

    def _start(self, seen: Survey, config: NodeConfig, status: object) -> None:
        if status is not None:
            service.stop(self._ssh, seen)
        self._say("starts the node")
        self._ssh.put(self._token, f"{seen.root}/token")
        self._ssh.put(config.to_json().encode(), f"{seen.root}/node.json")
        service.start(self._ssh, seen, config)

    def _wait(self, seen: Survey, known: frozenset[str]) -> None:
        """Wait until the head sees the machine; one that was started again, under another id than before."""
        if self._roll.wait_for_other(self.node.name, known, self._deadline_s):
            return
        log = self._ssh.run(["tail", "-n", "1", f"{seen.root}/{LOG_FILE}"]).stdout.strip() or "its log is empty"
        raise ClusterError(
            f"{self.node.name}: it did not join within {self._deadline_s:g} s: {log[:300]}",
            f"fleet doctor {self.node.name}; does it reach {self._info.address}?",
        )

    def _report(self, seen: Survey) -> MachineReported:
        argv = service.probe_argv(seen.root)
        printed = self._ssh.check(argv, what="asking what the machine is", timeout_s=120)
        try:
            facts = json.loads(printed)
            return MachineReported(machine=self.node.name, facts=facts, build_hash=facts["build_hash"])
        except (ValueError, TypeError, KeyError) as error:
            raise ClusterError(f"{self.node.name}: worker probe printed no JSON", "fleet up again") from error


def _mark_of(token: bytes) -> str:
    """A new token must reach the machines; its mark tells which one they have without telling it."""
    return hashlib.sha256(b"mark" + token).hexdigest()[:16]
