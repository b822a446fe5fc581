"""In which condition is this machine now, as far as a benchmark that is about to start must know? None: it does not say.

Reading runs up to eight short tools on macOS: before a benchmark, never beside one. Not verified on a Mac by this
project's tests: they feed it recorded output.
"""

from __future__ import annotations

import platform
from pathlib import Path

from worker.contract.condition import PresentCondition
from worker.machine import linux, macos
from worker.machine.command import Runner, run_command
from worker.machine.condition import condition
from worker.machine.identify import read_text
from worker.machine.processes import PROCESSES, parse_model_processes

USERS = ("/usr/bin/who", "-q")
"""With -q it counts the users too, so that nobody is told from no answer."""


def present_condition(
    run: Runner = run_command, *, system: str | None = None, root: Path = Path("/")
) -> PresentCondition:
    """Look at the machine. `system` and `root` are as for `identify`."""
    system = system or platform.system()
    common = condition(run, system=system, root=root)
    is_mac = system == "Darwin"
    return PresentCondition(
        on_ac_power=common.on_ac_power,
        power_mode=macos.parse_power_mode(run(macos.POWER)) if is_mac else _governor(root),
        thermal_level=_thermal_level(run, common.thermal_pressure) if is_mac else common.thermal_pressure,
        load_average=common.load_average,
        memory_pressure=macos.parse_memory_pressure(run(macos.MEMORY_PRESSURE)) if is_mac else None,
        model_processes=parse_model_processes(run(PROCESSES)),
        user_idle_s=macos.parse_idle_s(run(macos.INPUT_IDLE)) if is_mac else None,
        users=macos.parse_users(run(USERS)),
    )


def _thermal_level(run: Runner, by_clock: str | None) -> str | None:
    """The system's own level, unless that is nominal while the clock was lowered.

    A key that nobody ever set reads as 0 too: nominal from there is the weaker witness.
    """
    level = macos.parse_thermal_level(run(macos.THERMAL_LEVEL))
    return by_clock if level in (None, "nominal") and by_clock is not None else level


def _governor(root: Path) -> str | None:
    return linux.parse_word(read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
