"""Recorded machines: what each macOS tool printed, a folder per machine; a missing file is a missing tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from worker.machine import macos
from worker.machine.command import Runner
from worker.machine.present import USERS
from worker.machine.processes import PROCESSES

SAMPLES = Path(__file__).parent / "samples"
_FILES = {
    macos.SYSCTL: "sysctl.txt",
    macos.IOREG: "ioreg.txt",
    macos.DISPLAYS: "displays.json",
    macos.PRODUCT_VERSION: "product_version.txt",
    macos.BUILD_VERSION: "build_version.txt",
    macos.POWER: "pmset.txt",
    macos.BATTERY: "batt.txt",
    macos.THERMAL: "therm.txt",
    macos.THERMAL_LEVEL: "thermal_level.txt",
    macos.MEMORY_PRESSURE: "memory_pressure.txt",
    macos.INPUT_IDLE: "idle.txt",
    PROCESSES: "ps.txt",
    USERS: "who.txt",
}


def recorded(machine: str) -> Runner:
    """A runner that answers from the samples of `machine`."""

    def run(command: Sequence[str]) -> str | None:
        path = SAMPLES / machine / _FILES[tuple(command)]
        return path.read_text(encoding="utf-8") or None if path.exists() else None

    return run
