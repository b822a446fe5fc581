"""Gates: what must be true of a machine before a benchmark starts on it. A pure answer with its reasons in words.

The one idea: only what a machine says can close a gate. What it does not say leaves the gate open and is named, so that a
desktop without a battery is not kept waiting and nobody takes silence for a yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from fleet.spans import span
from fleet.strict import Strict, validate
from worker.contract.condition import PresentCondition


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What is asked for. The defaults are those of nights.

    `quiet`: no other program runs a language model, and memory is not short. The load average is not asked: after a job
    of ours it holds that job for minutes. `user_idle_s`: how long nobody has touched the machine; None asks nothing.
    """

    ac_power: bool = True
    thermal_nominal: bool = True
    quiet: bool = True
    user_idle_s: float | None = None


NO_GATES = Gates(ac_power=False, thermal_nominal=False, quiet=False)
"""For work that somebody asked for now."""


class _Table(Strict):
    ac_power: bool = True
    thermal_nominal: bool = True
    quiet: bool = True
    user_idle_s: float | None = Field(default=None, ge=0)


class _File(Strict):
    gates: _Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Nothing that the machine says speaks against it. `unknown`: what was asked and the machine does not say."""

    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Not now, and why, each in one sentence."""

    reasons: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def gates_of(table: Mapping[str, object], *, where: str) -> Gates:
    """Read the table `[gates]` of a study or machine file.

    Raises: UsageError naming the file, the key and what is allowed.
    """
    found = validate({"gates": dict(table)}, _File, where=where).gates
    return Gates(
        ac_power=found.ac_power,
        thermal_nominal=found.thermal_nominal,
        quiet=found.quiet,
        user_idle_s=found.user_idle_s,
    )


def stricter(one: Gates, other: Gates) -> Gates:
    """What both ask for together: a study's gates and a machine's own."""
    idle = [gates.user_idle_s for gates in (one, other) if gates.user_idle_s is not None]
    return Gates(
        ac_power=one.ac_power or other.ac_power,
        thermal_nominal=one.thermal_nominal or other.thermal_nominal,
        quiet=one.quiet or other.quiet,
        user_idle_s=max(idle, default=None),
    )


def check(gates: Gates, condition: PresentCondition) -> Open | Closed:
    """Hold a machine's present condition against the gates."""
    asked: list[tuple[str, object, str | None]] = []
    if gates.ac_power:
        asked.append(("on_ac_power", condition.on_ac_power, _power(condition.on_ac_power)))
    if gates.thermal_nominal:
        asked.append(("thermal_level", condition.thermal_level, _heat(condition.thermal_level)))
    if gates.quiet:
        asked.append(("model_processes", condition.model_processes, _models(condition.model_processes)))
        asked.append(("memory_pressure", condition.memory_pressure, _memory(condition.memory_pressure)))
    if gates.user_idle_s is not None:
        asked.append(("user_idle_s", condition.user_idle_s, _user(condition.user_idle_s, gates.user_idle_s)))
    unknown = tuple(name for name, value, _ in asked if value is None)
    reasons = tuple(reason for _, _, reason in asked if reason)
    return Closed(reasons=reasons, unknown=unknown) if reasons else Open(unknown=unknown)


def _power(on_ac_power: bool | None) -> str | None:
    return "on battery" if on_ac_power is False else None


def _heat(level: str | None) -> str | None:
    if level in (None, "nominal"):
        return None
    return "the clock is lowered by heat" if level == "limited" else f"thermal pressure is {level}"


def _models(names: tuple[str, ...] | None) -> str | None:
    return f"{' and '.join(names)} {'runs' if len(names) == 1 else 'run'}" if names else None


def _memory(pressure: str | None) -> str | None:
    return None if pressure in (None, "normal") else f"memory pressure is {pressure}"


def _user(idle_s: float | None, wanted_s: float) -> str | None:
    if idle_s is None or idle_s >= wanted_s:
        return None
    return f"the user was active {span(idle_s)} ago, the gate asks for {span(wanted_s)}"
