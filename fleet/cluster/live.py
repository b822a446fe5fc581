"""The live state: what the driver knows and the ledger does not keep (progress, why a machine idles), as one small file.

Written whole, at most once a second, by the one driver; read by `fleet status`, `watch` and a waiting `submit`. It is a view,
never the truth: a reader that finds none, or one whose driver is gone, says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fleet.cluster.processes import ProcessId
from worker.contract.private import replace_own

LIVE_FILE = "live.json"
PERIOD_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMachine:
    """One machine now. `state`: busy, idle, away, paused or aside; `why` in words when nothing is started there."""

    name: str
    state: str
    why: str | None = None
    study_id: str | None = None
    job: str | None = None
    attempt_id: str | None = None
    number: int | None = None
    phase: str | None = None
    fraction: float | None = None
    tok_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The driver's view. Units: `at_s` seconds since 1970."""

    driver: ProcessId
    at_s: float
    serves: bool
    """Whether the driver takes up any study that is asked for, or runs one only."""
    machines: tuple[LiveMachine, ...]
    waits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Why jobs wait that could run now: a sentence per study."""


class LiveFile:
    """Owns the file of one data directory while this process drives it."""

    def __init__(self, data: Path, *, serves: bool, clock: Callable[[], float] = time.time) -> None:
        self._path, self._serves, self._clock = data / LIVE_FILE, serves, clock
        self._written_s = 0.0
        self._driver = ProcessId.of(psutil.Process())

    def tell(self, machines: Callable[[], Sequence[LiveMachine]], waits: Mapping[str, str]) -> None:
        """Write the state, unless it was written a moment ago. A disk that refuses is no reason to stop a study."""
        now = self._clock()
        if now - self._written_s < PERIOD_S:
            return
        self._written_s = now
        live = Live(
            driver=self._driver,
            at_s=now,
            serves=self._serves,
            machines=tuple(machines()),
            waits=dict(waits),
        )
        with contextlib.suppress(OSError):
            replace_own(self._path, json.dumps(dataclasses.asdict(live)))

    def close(self) -> None:
        """Nobody drives any more."""
        self._path.unlink(missing_ok=True)


def read_live(data: Path) -> Live | None:
    """What the driver last said, or None when there is none that lives."""
    try:
        fields: dict[str, Any] = json.loads((data / LIVE_FILE).read_text(encoding="utf-8"))
        machines = tuple(LiveMachine(**machine) for machine in fields.pop("machines"))
        live = Live(machines=machines, driver=ProcessId(**fields.pop("driver")), **fields)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return live if live.driver.find() else None
