"""In which condition is this machine right now? Load, mains and heat, as one frozen value; None where it does not say.

Reading takes up to a few tens of milliseconds on macOS (two tools are run): outside timed regions only.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from worker.machine import macos
from worker.machine.command import Runner, run_command
from worker.machine.identify import read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`thermal_pressure` is `nominal` or `limited`. Units: `load_average` runnable processes over one minute."""

    load_average: float | None = None
    on_ac_power: bool | None = None
    thermal_pressure: str | None = None


def load_average() -> float | None:
    """The one-minute load average. It holds this process's own work too."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def condition(run: Runner = run_command, *, system: str | None = None, root: Path = Path("/")) -> Condition:
    """Read the machine's condition."""
    system = system or platform.system()
    if system == "Darwin":
        return Condition(
            load_average=load_average(),
            on_ac_power=macos.parse_on_ac_power(run(macos.BATTERY)),
            thermal_pressure=macos.parse_thermal(run(macos.THERMAL)),
        )
    return Condition(load_average=load_average(), on_ac_power=_on_ac_power(root), thermal_pressure=_thermal(root))


def _on_ac_power(root: Path) -> bool | None:
    """Whether a mains supply is on line; None on machines that list no supply, as most servers do."""
    supplies = sorted((root / "sys/class/power_supply").glob("*"))
    mains = [read_text(path / "online") for path in supplies if (read_text(path / "type") or "").strip() == "Mains"]
    states = [state.strip() for state in mains if state is not None]
    return "1" in states if states else None


def _thermal(root: Path) -> str | None:
    """`limited` when the kernel holds a processor back to cool it."""
    devices = sorted((root / "sys/class/thermal").glob("cooling_device*"))
    states = [
        (read_text(path / "cur_state") or "").strip()
        for path in devices
        if (read_text(path / "type") or "").strip() == "Processor"
    ]
    levels = [level for state in states if (level := macos.whole(state)) is not None]
    return ("limited" if any(levels) else "nominal") if levels else None
