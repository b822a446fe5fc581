"""What travels between the head and the supervisor of one attempt: small frozen values, each with its attempt's id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from fleet.nodes.node import NodeName
from fleet.schedule.gates import Gates
from fleet.study.study import StudyId
from worker.contract.outcome import Outcome
from worker.contract.spool import Progress
from worker.contract.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the head tells a supervisor to do.

    `worker_argv` is how the benchmark's command line begins; by default the worker of the supervisor's own installation.
    `spool` is the folder that gets one directory per attempt. Paths are the node's; `~` is its home.
    """

    study_id: StudyId
    task: Task
    attempt_id: str
    node: NodeName
    spool: Path
    worker_argv: tuple[str, ...] = ()
    lock: Path | None = None
    cache: Path | None = None
    heartbeat_s: float = 5.0
    poll_s: float = 0.2
    grace_s: float = 3.0
    """How long the benchmark may take to end by itself after it was told to stop."""
    gates: Gates | None = None
    """What must be true of the machine before the benchmark starts there; None asks nothing."""

    @property
    def directory(self) -> Path:
        return self.spool.expanduser() / self.attempt_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """The machine is not in the condition that was asked for; no benchmark was started."""

    attempt_id: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The benchmark's process exists; it leads a process group of its own."""

    attempt_id: str
    supervisor_pid: int
    pid: int
    build_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The supervisor and the benchmark are alive, and there is nothing new."""

    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """The benchmark wrote a line of progress."""

    attempt_id: str
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class TableItem:
    """One table of the result."""

    attempt_id: str
    name: str
    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LogItem:
    """The end of what the benchmark wrote, told once it is over."""

    attempt_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The benchmark ended by itself; when it completed, its tables came before."""

    attempt_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """The benchmark, its supervisor or its node is gone without an outcome. `machine`: the node, not the benchmark."""

    attempt_id: str
    reason: str
    machine: bool = False


Item = Postponed | Started | Heartbeat | Advanced | TableItem | LogItem | Ended | Vanished
