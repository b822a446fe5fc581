"""What a machine says of itself when the fleet asks: its identity, its disk, and the build that runs on it."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path
from typing import Any

from worker.contract.build import build_hash
from worker.machine import linux, macos
from worker.machine.command import Runner, run_command
from worker.machine.identify import identify, read_text


def read_ssd(run: Runner = run_command, *, system: str | None = None, root: Path = Path("/")) -> str | None:
    """The model of the internal disk, or None where nobody says."""
    if (system or platform.system()) == "Darwin":
        return macos.parse_ssd(run(macos.NVME))
    models = (linux.parse_word(read_text(path)) for path in sorted(root.glob("sys/block/nvme*/device/model")))
    return next((model for model in models if model), None)


def probe() -> dict[str, Any]:
    """Everything that a machine reports, as JSON values; null is not known."""
    return dataclasses.asdict(identify()) | {"ssd": read_ssd(), "build_hash": build_hash()}
