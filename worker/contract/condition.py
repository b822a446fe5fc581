"""What a machine says of its present condition, as a value that crosses from the machine to the head as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

THERMAL_LEVELS = ("nominal", "moderate", "heavy", "trapping", "sleeping", "limited")
"""macOS's levels of thermal pressure in order, then what other signs tell: the clock was lowered."""

MEMORY_PRESSURES = ("normal", "warn", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentCondition:
    """One look at a machine; None is what it does not say, never a guess.

    `model_processes` names other programs that run language models; `user_idle_s` counts from the last key, click or
    touch; `load_average` is over one minute.
    """

    on_ac_power: bool | None = None
    power_mode: str | None = None
    thermal_level: str | None = None
    load_average: float | None = None
    memory_pressure: str | None = None
    model_processes: tuple[str, ...] | None = None
    user_idle_s: float | None = None
    users: tuple[str, ...] | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=2)


def condition_from_json(text: str) -> PresentCondition:
    """Read what `worker condition` printed, perhaps that of another build: what is missing or odd is None."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return PresentCondition()
    values: Mapping[str, Any] = found if isinstance(found, dict) else {}
    return PresentCondition(
        on_ac_power=_as(bool, values.get("on_ac_power")),
        power_mode=_as(str, values.get("power_mode")),
        thermal_level=_as(str, values.get("thermal_level")),
        load_average=_number(values.get("load_average")),
        memory_pressure=_as(str, values.get("memory_pressure")),
        model_processes=_names(values.get("model_processes")),
        user_idle_s=_number(values.get("user_idle_s")),
        users=_names(values.get("users")),
    )


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(value: Any) -> tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) and all(isinstance(name, str) for name in value) else None
