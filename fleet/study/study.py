"""A study as a frozen value: what was asked, resolved to the last setting, before anything runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NewType

from worker.contract.task import Task

StudyId = NewType("StudyId", str)

NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9._-]{0,46}[a-z0-9])?")
"""Safe as a file name, as a Ray label and as part of a path in the store."""


Spread = Literal["each", "any"]
"""Whether every machine that fits runs every task, or each task runs once, on whichever is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A named set of tasks. Its file, and where and when it may run (`path` and from `require` on), are no part of its id."""

    name: str
    description: str
    tasks: tuple[Task, ...]
    path: Path
    edition: int = 1
    """Counts deliberate repetitions of the same tasks; each is a study of its own."""
    require: tuple[str, ...] = ()
    """Conditions on the machines, such as "memory_gb >= 64"; all must hold."""
    machines: Spread = "each"
    gates: Mapping[str, bool | float | None] | None = None
    """What must be true of a machine before each start, e.g. ac_power; None: what nights ask for, by night only."""

    @property
    def id(self) -> StudyId:
        """The name, a hash of the tasks, and the edition when it is not the first: an edited study is another study."""
        digest = hashlib.sha256("\n".join(task.id for task in self.tasks).encode()).hexdigest()[:8]
        return StudyId(f"{self.name}-{digest}" + (f"-{self.edition}" if self.edition > 1 else ""))

    def in_edition(self, edition: int) -> Study:
        return dataclasses.replace(self, edition=edition)

    def to_dict(self) -> dict[str, Any]:
        """The resolved study as it is stored: every task with every setting."""
        return {
            "study_id": self.id,
            "name": self.name,
            "description": self.description,
            "edition": self.edition,
            "path": str(self.path),
            "require": list(self.require),
            "machines": self.machines,
            "gates": None if self.gates is None else dict(self.gates),
            "tasks": [{"task_id": task.id, **task.to_dict()} for task in self.tasks],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)
