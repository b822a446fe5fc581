"""What macOS's tools print, turned into facts. Pure functions of text that never raise: what can't be read is None.

Tested on recorded and on random text; not verified on a Mac by this project's tests. The traps they step around:
`number_processors` of system_profiler changes its form with each generation, so CPU tiers come from sysctl; the GPU's
core count is a number in ioreg and a string in system_profiler; a VM lacks most of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SYSCTL_NAMES: tuple[str, ...] = (
    "hw.model",
    "machdep.cpu.brand_string",
    "hw.memsize",
    "hw.physicalcpu",
    "hw.nperflevels",
    *(f"hw.perflevel{level}.{what}" for level in range(4) for what in ("name", "physicalcpu")),
    "iogpu.wired_limit_mb",
)
SYSCTL = ("/usr/sbin/sysctl", *SYSCTL_NAMES)
IOREG = ("/usr/sbin/ioreg", "-rc", "AGXAccelerator", "-d1")
DISPLAYS = ("/usr/sbin/system_profiler", "SPDisplaysDataType", "-json")
NVME = ("/usr/sbin/system_profiler", "SPNVMeDataType", "-json")
PRODUCT_VERSION = ("/usr/bin/sw_vers", "-productVersion")
BUILD_VERSION = ("/usr/bin/sw_vers", "-buildVersion")
POWER = ("/usr/bin/pmset", "-g")
BATTERY = ("/usr/bin/pmset", "-g", "batt")
THERMAL = ("/usr/bin/pmset", "-g", "therm")
THERMAL_LEVEL = ("/usr/bin/notifyutil", "-g", "com.apple.system.thermalpressurelevel")
MEMORY_PRESSURE = ("/usr/sbin/sysctl", "-n", "kern.memorystatus_vm_pressure_level")
INPUT_IDLE = ("/usr/sbin/ioreg", "-rc", "IOHIDSystem", "-d1")

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_POWER_MODES = {"0": "normal", "1": "low", "2": "high"}
_THERMAL_LEVELS = {"0": "nominal", "1": "moderate", "2": "heavy", "3": "trapping", "4": "sleeping"}
_MEMORY_PRESSURES = {"1": "normal", "2": "warn", "4": "critical"}


def parse_sysctl(text: str | None) -> dict[str, str]:
    """Read `name: value` lines; names that were not asked for are dropped."""
    values: dict[str, str] = {}
    for line in (text or "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() in SYSCTL_NAMES and value.strip():
            values[name.strip()] = value.strip()
    return values


def whole(value: str | None) -> int | None:
    """A whole number that is not negative, or None."""
    return int(value) if value is not None and _WHOLE.fullmatch(value) else None


def cpu_cores(sysctl: Mapping[str, str]) -> int | None:
    return whole(sysctl.get("hw.physicalcpu")) or None


def cpu_tiers(sysctl: Mapping[str, str]) -> str | None:
    """The kinds of cores, fastest first: `12 Performance + 4 Efficiency`."""
    num_levels = whole(sysctl.get("hw.nperflevels")) or 0
    tiers: list[str] = []
    for level in range(min(num_levels, 4)):
        cores = whole(sysctl.get(f"hw.perflevel{level}.physicalcpu"))
        if cores is None:
            return None
        tiers.append(f"{cores} {sysctl.get(f'hw.perflevel{level}.name', f'level {level}')}")
    return " + ".join(tiers) or None


def wired_limit_bytes(sysctl: Mapping[str, str]) -> int | None:
    """The limit that somebody set, in bytes; None when the system decides (0) or does not say."""
    megabytes = whole(sysctl.get("iogpu.wired_limit_mb"))
    return megabytes * 2**20 if megabytes and megabytes < 2**31 else None


def parse_gpu_cores(text: str | None) -> int | None:
    """The GPU's core count in ioreg's output."""
    found = re.search(r'"gpu-core-count"\s*=\s*([0-9]{1,6})(?![0-9])', text or "", re.ASCII)
    return int(found[1]) or None if found else None


def parse_displays(text: str | None) -> int | None:
    """The GPU's core count in system_profiler's JSON, where it is a string."""
    try:
        data: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    displays = data.get("SPDisplaysDataType") if isinstance(data, dict) else None
    for display in displays if isinstance(displays, list) else []:
        cores = display.get("sppci_cores") if isinstance(display, dict) else None
        if isinstance(cores, str) and (count := whole(cores.strip())):
            return count
    return None


def parse_ssd(text: str | None) -> str | None:
    """The model of the first internal disk in system_profiler's JSON: controllers, each with its disks below `_items`."""
    try:
        data: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    controllers = data.get("SPNVMeDataType") if isinstance(data, dict) else None
    for controller in controllers if isinstance(controllers, list) else []:
        disks = controller.get("_items") if isinstance(controller, dict) else None
        for disk in disks if isinstance(disks, list) else []:
            model = disk.get("device_model") if isinstance(disk, dict) else None
            if isinstance(model, str) and 0 < len(model.strip()) <= 120 and model.strip().isprintable():
                return model.strip()
    return None


def parse_line(text: str | None) -> str | None:
    """The only line of a tool that prints one (sw_vers); anything longer is not what was asked for."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 and len(lines[0]) <= 64 and lines[0].isprintable() else None


def parse_power_mode(text: str | None) -> str | None:
    """`low`, `normal` or `high` from `pmset -g`, where either name may be absent."""
    for name in ("powermode", "lowpowermode"):
        found = re.search(rf"^\s*{name}\s+([0-9])\s*$", text or "", re.ASCII | re.MULTILINE)
        if found and (mode := _POWER_MODES.get(found[1])):
            return mode
    return None


def parse_on_ac_power(text: str | None) -> bool | None:
    """Whether the first line of `pmset -g batt` names the mains."""
    found = re.search(r"^Now drawing from '(AC Power|Battery Power|UPS Power)'", text or "")
    return found[1] == "AC Power" if found else None


def parse_thermal(text: str | None) -> str | None:
    """`nominal`, or `limited` when the clock was lowered. The system may say nominal while the GPU throttles."""
    limit = re.search(r"CPU_Speed_Limit\s*=\s*([0-9]{1,3})(?![0-9])", text or "", re.ASCII)
    if limit:
        return "nominal" if int(limit[1]) >= 100 else "limited"
    return "nominal" if text and "No thermal warning level has been recorded" in text else None


def parse_thermal_level(text: str | None) -> str | None:
    """The level of thermal pressure that notifyutil prints after the key."""
    found = re.fullmatch(r"com\.apple\.system\.thermalpressurelevel ([0-9])", (text or "").strip(), re.ASCII)
    return _THERMAL_LEVELS.get(found[1]) if found else None


def parse_memory_pressure(text: str | None) -> str | None:
    """`normal`, `warn` or `critical`, from the kernel's 1, 2 and 4."""
    return _MEMORY_PRESSURES.get((text or "").strip())


def parse_idle_s(text: str | None) -> float | None:
    """Seconds since the last key, click or touch; ioreg counts nanoseconds."""
    found = re.search(r'"HIDIdleTime"\s*=\s*([0-9]{1,18})(?![0-9])', text or "", re.ASCII)
    return int(found[1]) / 1e9 if found else None


def parse_users(text: str | None) -> tuple[str, ...] | None:
    """Who is logged in, each once, from `who -q`, whose last line counts them."""
    lines = (text or "").splitlines()
    if not lines or not re.fullmatch(r"# users ?= ?[0-9]{1,6}", lines[-1].strip(), re.ASCII):
        return None
    return tuple(sorted({name for line in lines[:-1] for name in line.split()}))
