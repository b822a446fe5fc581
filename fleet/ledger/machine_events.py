"""What the ledger keeps of machines: what each said of itself when it was brought up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReported:
    """A machine was brought up and said what it is. `facts` is the JSON of `worker probe`, as it came."""

    machine: str
    facts: dict[str, Any] = field(default_factory=dict)
    build_hash: str
