"""How attempts are started: the settings of a driver, and where an attempt finds its folders on its machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fleet.nodes.node import Node
from fleet.schedule.deadlines import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How attempts are started and how long silence is tolerated. Units: seconds."""

    spool: Path
    worker_argv: tuple[str, ...] = ()
    lock: Path | None = None
    cache: Path | None = None
    heartbeat_s: float = 5.0
    grace_s: float = 3.0
    limits: Limits = field(default_factory=Limits)
    retry_pause: float = 1.0
    """Scales the pauses before another attempt."""
    logs: Path | None = None
    """Where the end of each attempt's output is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Folders on the machine that runs an attempt."""

    spool: Path
    lock: Path | None
    cache: Path | None


def places_on(node: Node, settings: Settings) -> Places:
    """The settings' own places on this machine, the inventory's on any other."""
    if node.address is None:
        return Places(spool=settings.spool, lock=settings.lock, cache=settings.cache)
    root, lock, cache = Path(node.paths.root), node.paths.lock, node.paths.cache
    return Places(spool=root / "spool", lock=Path(lock) if lock else None, cache=Path(cache) if cache else None)
