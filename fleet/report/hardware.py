"""The per-hardware comparison report as data: what the renderers share, with nothing rounded and nothing drawn.

In: the Arrow tables of a study and what the head has to say about them. Out: frozen values. Rows of a synthetic engine
or a simulated node never stand beside real ones: they are left out with a warning, unless there is nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fleet.compare.row import Row, compare
from fleet.compare.samples import RowSamples, collect
from worker.machine.comparability import COMPARABLE_FIELDS

SCHEMA_VERSION = 1
"""Of the report's JSON; the tables have their own."""

_NAMED_BY_MACHINE = ("cpu_tiers",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine as its latest run saw it."""

    name: str
    hardware_model: str | None
    chip: str | None
    cpu_cores: int | None
    cpu_tiers: str | None
    gpu_cores: int | None
    memory_bytes: int | None
    os_name: str | None
    os_version: str | None
    os_build: str | None
    mlx_device: str | None
    mlx_version: str | None
    mlx_lm_version: str | None
    mlx_wheel_tag: str | None
    python_version: str | None
    wired_limit_bytes: int | None
    power_mode: str | None
    nice: int | None
    omp_num_threads: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """A row of the comparison, and the settings that tell it from the machine's other rows."""

    figures: Row
    variant: tuple[tuple[str, str | int | bool | None], ...]

    @property
    def machine(self) -> str:
        return self.figures.key.node or "(unnamed)"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareReport:
    """Everything a renderer needs."""

    study: str
    synthetic: bool
    machines: tuple[Machine, ...]
    rows: tuple[ReportRow, ...]
    warnings: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION

    def rows_of(self, machine: str) -> tuple[ReportRow, ...]:
        return tuple(row for row in self.rows if row.machine == machine)


def hardware_report(tables: Mapping[str, pa.Table], *, study: str, warnings: Sequence[str] = ()) -> HardwareReport:
    """Compare everything in `tables`. Raises: ValueError when a table is not of this build's schema."""
    samples = collect(tables)
    real = [row for row in samples.rows if not row.key.synthetic]
    simulated = [row for row in samples.rows if row.key.synthetic]
    chosen = real or simulated
    figures = [compare(row) for row in chosen]
    return HardwareReport(
        study=study,
        synthetic=bool(simulated) and not real,
        machines=_machines(chosen),
        rows=tuple(ReportRow(figures=row, variant=_variant(row, figures)) for row in figures),
        warnings=(*warnings, *_warnings(figures, len(simulated) if real else 0, samples.num_superseded)),
    )


def _machines(rows: Sequence[RowSamples]) -> tuple[Machine, ...]:
    latest = {}
    for run in (prompt.run for row in rows for prompt in row.prompts):
        name = run.node or "(unnamed)"
        other = latest.get(name)
        if other is None or (run.finished_at and (not other.finished_at or run.finished_at > other.finished_at)):
            latest[name] = run
    return tuple(
        Machine(name=name, **{field: getattr(run, field) for field in (*COMPARABLE_FIELDS, *_NAMED_BY_MACHINE)})
        for name, run in sorted(latest.items())
    )


def _variant(row: Row, rows: Sequence[Row]) -> tuple[tuple[str, str | int | bool | None], ...]:
    """The shared columns whose values differ between this machine's rows."""
    siblings = [dict(other.key.shared) for other in rows if other.key.node == row.key.node]
    siblings_digests = {other.key.checkpoint_digest for other in rows if _same_checkpoint_name(other, row)}
    digest = (("checkpoint_digest", row.key.checkpoint_digest),) if len(siblings_digests) > 1 else ()
    return (
        *digest,
        *((name, value) for name, value in row.key.shared if any(other[name] != value for other in siblings)),
    )


def _same_checkpoint_name(row: Row, other: Row) -> bool:
    return (row.key.node, row.key.checkpoint) == (other.key.node, other.key.checkpoint)


def _warnings(rows: Sequence[Row], num_synthetic: int, num_superseded: int) -> list[str]:
    found: list[str] = []
    if num_synthetic:
        found.append(
            f"{num_synthetic} synthetic row{_s(num_synthetic)} left out: made by a simulation, not by a machine"
        )
    if num_superseded:
        found.append(
            f"{num_superseded} older result{_s(num_superseded)} left out: "
            "the same task ran again on the same machine, and the latest counts"
        )
    if wrong := sum(row.exactness == "wrong" for row in rows):
        found.append(
            f"{wrong} of {len(rows)} row{_s(len(rows))} wrong: speculative tokens differ from greedy beyond rounding; "
            "no speedup is given for them"
        )
    builds = {build for row in rows for build in row.build_hashes}
    if len(builds) > 1:
        found.append(
            f"rows come from {len(builds)} different builds ({', '.join(sorted(builds))}): "
            "a difference between them may be the program's; run the study again with one build"
        )
    for machine in sorted({row.key.node or "(unnamed)" for row in rows}):
        changed = _changed_state([row for row in rows if (row.key.node or "(unnamed)") == machine])
        if changed:
            found.append(f"{machine} changed between its rows ({', '.join(changed)}): they are kept apart")
    return found


def _changed_state(rows: Sequence[Row]) -> list[str]:
    shared = [dict(row.key.shared) for row in rows]
    return [name for name in COMPARABLE_FIELDS if len({state[name] for state in shared}) > 1]


def _s(count: int) -> str:
    return "" if count == 1 else "s"
