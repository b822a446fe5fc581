"""How a value is written for people. Rounding happens here and nowhere before; GiB, MiB and GB/s exist here only.

A cell without a measurement is "-". Text from outside is made printable here once; escaping it for a format is the
business of that format's renderer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.compare.stats import Estimate
from fleet.report.hardware import HardwareReport, Machine, ReportRow

Tone = Literal["plain", "good", "warn", "bad", "muted"]
EXACTNESS_TONE: dict[str | None, Tone] = {"identical": "good", "tie": "good", "drift": "warn"}
LEVEL_TONE: dict[str | None, Tone] = {"error": "bad", "warning": "warn", "note": "muted"}
NOTHING = "-"
GIB, MIB, MS, GB_S = 2**30, 2**20, 1e-3, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value as people read it."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table. `numeric[i]` says whether column i is set flush right."""

    title: str
    note: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(title: str, note: str, columns: Sequence[str], align: str, rows: Sequence[Sequence[Cell]]) -> Table:
    """Make a table; `align` has one letter per column, l or r."""
    numeric = tuple(letter == "r" for letter in align)
    assert len(numeric) == len(columns), title
    assert all(len(row) == len(columns) for row in rows), title
    return Table(title=title, note=note, columns=tuple(columns), numeric=numeric, rows=tuple(tuple(r) for r in rows))


def text(value: str, tone: Tone = "plain") -> Cell:
    return Cell(text=printable(value), tone=tone)


def printable(value: str) -> str:
    """Replace line breaks and control characters, which could forge a line or drive a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in value)


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with at least `digits` significant digits, never in powers of ten between 0.001 and a million."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -digits:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def scaled(value: float | None, unit: float) -> str:
    return NOTHING if value is None else number(value / unit)


def size(value: int | None) -> str:
    """Write bytes in GiB, or in MiB below one GiB."""
    if value is None:
        return NOTHING
    return f"{number(value / GIB)} GiB" if value >= GIB else f"{number(value / MIB)} MiB"


def count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def times(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """Write a share; 100 % only when nothing is missing, so a rare miss stays visible."""
    if value is None:
        return NOTHING
    return f"{min(value * 100, 99.9):.1f} %" if value < 1 else "100 %"


def percents(values: Sequence[float | None] | None) -> str:
    return NOTHING if not values else " ".join(percent(value).replace(" %", "%") for value in values)


def pair(left: str, right: str) -> str:
    return NOTHING if left == right == NOTHING else f"{left} / {right}"


def interval(value: Estimate) -> str:
    """Write a median and its interval, `12.3 [12.1, 12.5]`, or the median alone."""
    if value.median is None or value.low is None or value.high is None:
        return number(value.median)
    return f"{number(value.median)} [{number(value.low)}, {number(value.high)}]"


def times_interval(value: Estimate) -> str:
    """Write a factor and its interval, `1.52x [1.48, 1.55]`, or the factor alone."""
    if value.median is None or value.low is None or value.high is None:
        return times(value.median)
    return f"{times(value.median)} [{value.low:.2f}, {value.high:.2f}]"


def exactness_cell(exactness: str | None) -> Cell:
    return text(exactness or "not verified", EXACTNESS_TONE.get(exactness, "bad"))


def flags_cell(row: ReportRow) -> Cell:
    flags = row.figures.flags
    if not flags:
        return text(NOTHING, "muted")
    worst = row.figures.worst_level
    num_worst = sum(flag.level == worst for flag in flags)
    return text(f"{num_worst} {worst}{'' if num_worst == 1 else 's'}", LEVEL_TONE[worst])


def label(row: ReportRow) -> str:
    """Name a row within its machine: width, slots, and whatever else tells it from its siblings."""
    key = row.figures.key
    slots = f"{slots_of(row, unknown='?')} {'slots' if key.memory_budget_bytes is None else 'budget'}"
    width = f"width {'?' if key.verify_width is None else key.verify_width}"
    return ", ".join(part for part in (width, slots, settings(row)) if part)


def slots_of(row: ReportRow, unknown: str = NOTHING) -> str:
    """Write the slots of every layer, or the memory budget that they were made to fit."""
    key = row.figures.key
    if key.memory_budget_bytes is not None:
        return size(key.memory_budget_bytes)
    return unknown if key.slots_per_layer is None else count(key.slots_per_layer)


def settings(row: ReportRow) -> str:
    """Write whatever else tells a row from its siblings."""
    return ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in row.variant)


def which_columns(rows: Sequence[ReportRow]) -> tuple[str, ...]:
    """The columns that name a row within its machine; checkpoint and settings only where they differ."""
    names = ["width", "slots"]
    if len({row.figures.key.checkpoint for row in rows}) > 1:
        names.insert(0, "checkpoint")
    if any(row.variant for row in rows):
        names.append("settings")
    return tuple(names)


def which_align(rows: Sequence[ReportRow]) -> str:
    """How those columns are set, as `table` takes it."""
    return "".join("r" if name in ("width", "slots") else "l" for name in which_columns(rows))


def which(row: ReportRow, rows: Sequence[ReportRow]) -> tuple[Cell, ...]:
    """The cells of those columns."""
    key = row.figures.key
    values = {
        "checkpoint": key.checkpoint or NOTHING,
        "width": count(key.verify_width),
        "slots": slots_of(row),
        "settings": settings(row),
    }
    return tuple(text(values[name]) for name in which_columns(rows))


def describe(machine: Machine) -> str:
    """Say in one line what a machine is."""
    parts = [
        machine.chip or machine.hardware_model or "unknown chip",
        f"{machine.cpu_cores} CPU cores" if machine.cpu_cores else "",
        f"{machine.gpu_cores} GPU cores" if machine.gpu_cores else "",
        f"{machine.memory_bytes / GIB:.0f} GiB" if machine.memory_bytes else "",
        " ".join(part for part in (machine.os_name, machine.os_version) if part),
        f"MLX {machine.mlx_version} on {machine.mlx_device or 'unknown device'}" if machine.mlx_version else "",
    ]
    return ", ".join(part for part in parts if part)


def fastest(rows: Sequence[ReportRow]) -> ReportRow | None:
    """The row with the highest speculative rate among those that may be compared."""
    rated = [
        (row.figures.speculative.decode_tok_s.median, row)
        for row in rows
        if row.figures.comparable and row.figures.speculative.decode_tok_s.median is not None
    ]
    return max(rated, key=lambda item: item[0] or 0.0)[1] if rated else None


def trust_cell(rows: Sequence[ReportRow]) -> Cell:
    """Say whether a machine's figures can be trusted, and how many of its rows stand in the way."""
    false = sum(row.figures.worst_level == "error" for row in rows)
    careful = sum(row.figures.worst_level == "warning" for row in rows)
    if not rows:
        return text(NOTHING, "muted")
    if false:
        return text(f"no ({false} of {len(rows)} in error)", "bad")
    if careful:
        return text(f"with care ({careful} of {len(rows)} flagged)", "warn")
    return text("yes", "good")


def verdict_line(report: HardwareReport) -> Cell:
    """Answer in one sentence whether the report can be trusted."""
    rows = report.rows
    if not rows:
        return text("Nothing was measured.", "warn")
    names = [name for name in ("identical", "tie", "drift", "wrong", None) if _num_exact(rows, name)]
    spread = ", ".join(f"{_num_exact(rows, name)} {name or 'not verified'}" for name in names)
    head = f"{len(rows)} row{'' if len(rows) == 1 else 's'}: {spread}"
    if report.synthetic:
        return text(f"SYNTHETIC: no machine was measured. {head}.", "warn")
    errors = sum(row.figures.worst_level == "error" for row in rows)
    if errors:
        return text(f"Not trustworthy as a whole. {head}; {errors} in error.", "bad")
    careful = sum(row.figures.worst_level == "warning" for row in rows)
    if careful or "drift" in names:
        return text(f"Trust with care. {head}; {careful} flagged.", "warn")
    return text(f"Trustworthy. {head}; every check ran and passed.", "good")


def _num_exact(rows: Sequence[ReportRow], name: str | None) -> int:
    return sum(row.figures.exactness == name for row in rows)
