"""From tables to samples: the raw rows, typed, and grouped into what may be blended.

In: the Arrow tables of one study. Out: one `RowSamples` per combination of machine, checkpoint, verify width and pool
size, and of everything else that changes a speed: the machine's state, the software, the engine's settings, the
protocol. The one idea: nothing is averaged here, so every figure of the report can be traced to its repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import pyarrow as pa

from fleet.compare.records import Check, Counters, Repeat, Run, Step
from worker.contract.schema import SCHEMAS
from worker.machine.comparability import comparability_key

SETTINGS: tuple[str, ...] = (
    "schema_version",
    "layout_version",
    "quantization",
    "mtp_quantization",
    "verify_mode",
    "rollback",
    "draft_policy",
    "draft_confidence",
    "allocation",
    "eviction",
    "compute_dtype",
    "read_path",
    "page_cache",
    "prefetch",
    "prefetch_ranks",
    "keep_warm",
    "cache_limit_bytes",
    "group_limit",
    "reader_threads",
    "queue_depth",
    "prefill_chunk_tokens",
    "pin_hot_experts",
    "pin_calibration_tokens",
    "order",
    "max_tokens",
    "warmup_tokens",
    "rewarm_tokens",
    "stop_at_eos",
)
"""Columns of `runs` that set the engine or the protocol: rows that differ in one of them are different rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSamples:
    """Everything measured on one prompt within a row."""

    run: Run
    repeats: tuple[Repeat, ...]
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]

    def select(self, path: str, *, instrumented: bool = False) -> tuple[Repeat, ...]:
        """The repeats of one path in the order they ran; rates may come from those that are not instrumented only."""
        return tuple(r for r in self.repeats if r.path == path and bool(r.instrumented) == instrumented)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKey:
    """What all samples of a row share. `shared` holds every other (column, value) that must not be blended."""

    node: str | None
    checkpoint: str | None
    checkpoint_digest: str | None
    verify_width: int | None
    slots_per_layer: int | None
    memory_budget_bytes: int | None
    synthetic: bool
    shared: tuple[tuple[str, str | int | bool | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSamples:
    """The samples of one row of the report."""

    key: RowKey
    prompts: tuple[PromptSamples, ...]

    def select(self, path: str, *, instrumented: bool = False) -> tuple[Repeat, ...]:
        """The repeats of one path over all prompts."""
        return tuple(r for prompt in self.prompts for r in prompt.select(path, instrumented=instrumented))


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """All rows of a study, and how many older attempts at the same work were left out."""

    rows: tuple[RowSamples, ...]
    num_superseded: int


def collect(tables: Mapping[str, pa.Table]) -> Samples:
    """Group the tables into rows, in the order of the machine's name, checkpoint, width and pool size.

    A check without a prompt belongs to the whole attempt and is counted once, with the attempt's first prompt.

    A task that completed more than once on one machine counts once, by its latest attempt: two processes are two states
    of the machine, and pooling them would hide that.
    """
    runs = [_typed(Run, record) for record in _records(tables, "runs", Run)]
    latest = _latest(runs)
    repeats = _by_run(tables, "repeats", Repeat)
    steps = _by_run(tables, "steps", Step, only_measured=True)
    checks = _by_run(tables, "checks", Check)
    groups: dict[RowKey, list[PromptSamples]] = defaultdict(list)
    for run in latest:
        key = _run_key(run)
        groups[row_key(run)].append(
            PromptSamples(
                run=run,
                repeats=tuple(sorted(repeats[key], key=_measuring_order)),
                steps=tuple(steps[key]),
                checks=tuple(checks[key]) + tuple(checks.pop((*key[:3], None), ())),
            )
        )
    rows = [RowSamples(key=key, prompts=tuple(prompts)) for key, prompts in groups.items()]
    return Samples(rows=tuple(sorted(rows, key=lambda row: _sort_key(row.key))), num_superseded=len(runs) - len(latest))


def row_key(run: Run) -> RowKey:
    """Name the row that a run belongs to."""
    return RowKey(
        node=run.node,
        checkpoint=run.checkpoint,
        checkpoint_digest=run.checkpoint_digest,
        verify_width=run.verify_width,
        slots_per_layer=run.slots_per_layer,
        memory_budget_bytes=run.memory_budget_bytes,
        synthetic=bool(run.synthetic),
        shared=(*comparability_key(run), *((name, getattr(run, name)) for name in SETTINGS)),
    )


_RunKey = tuple[str | None, str | None, str | None, str | None]
_T = TypeVar("_T", Run, Repeat, Step, Check, Counters)
_KEY_COLUMNS = ("study_id", "task_id", "attempt_id", "prompt_id")


def _latest(runs: Iterable[Run]) -> list[Run]:
    newest: dict[tuple[str | None, ...], Run] = {}
    for run in runs:
        key = (run.node, run.task_id, run.prompt_id)
        other = newest.get(key)
        if other is None or _finished(run) >= _finished(other):
            newest[key] = run
    return list(newest.values())


def _finished(run: Run) -> float:
    return run.finished_at.timestamp() if run.finished_at else float("-inf")


def _run_key(run: Run) -> _RunKey:
    return (run.study_id, run.task_id, run.attempt_id, run.prompt_id)


def _measuring_order(repeat: Repeat) -> tuple[int, int]:
    return (repeat.sequence_index or 0, repeat.repeat_index or 0)


def _sort_key(key: RowKey) -> tuple[str, ...]:
    sizes = (key.verify_width, key.slots_per_layer, key.memory_budget_bytes)
    numbers = (f"{-1 if value is None else value:015d}" for value in sizes)
    return (key.node or "", key.checkpoint or "", key.checkpoint_digest or "", *numbers, repr(key.shared))


def _records(
    tables: Mapping[str, pa.Table], name: str, cls: type, *, keys: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    table = tables.get(name)
    if table is None:
        return []
    if not table.schema.equals(SCHEMAS[name]):
        raise ValueError(f"the table {name} differs from this build's schema")
    wanted = [field.name for field in fields(cls)]
    return table.select([*keys, *(column for column in wanted if column not in keys)]).to_pylist()


def _by_run(
    tables: Mapping[str, pa.Table], name: str, cls: type[_T], *, only_measured: bool = False
) -> dict[_RunKey, list[_T]]:
    extra = ("instrumented",) if only_measured else ()
    grouped: dict[_RunKey, list[_T]] = defaultdict(list)
    for record in _records(tables, name, cls, keys=(*_KEY_COLUMNS, *extra)):
        if only_measured and record["instrumented"]:
            continue
        study, task, attempt, prompt = (record[column] for column in _KEY_COLUMNS)
        grouped[(study, task, attempt, prompt)].append(_typed(cls, record))
    return grouped


def _typed(cls: type[_T], record: Mapping[str, Any]) -> _T:
    return cls(**{field.name: _value(record[field.name]) for field in fields(cls)})


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return _typed(Counters, value)
    return tuple(value) if isinstance(value, list) else value
