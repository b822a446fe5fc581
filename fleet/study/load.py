"""A study file in, a frozen `Study` out: strict keys, relative paths resolved, every task checked before any runs.

name, description
require       conditions on the machines, such as ["chip = m4*", "memory_gb >= 64"]; all must hold
machines      "each": every machine that fits runs every task; "any": each task runs once, on whichever is free
[checkpoint]  source, mtp, digest       `source` is "demo", a directory, or a path that starts with ~ (the node's home)
[prompts]     file, ids, categories     `file` is relative to the study
[engine]      settings that are the same in every task
[matrix]      axes: one task per combination
[protocol]    how often, how long, in which order
[gates]       what must be true of a machine before each start: ac_power, thermal_nominal, quiet, user_idle_s
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fleet.errors import UsageError
from fleet.strict import Strict, read_toml
from fleet.study.matrix import Axis, combinations
from fleet.study.prompts import read_prompts, select_prompts
from fleet.study.study import NAME_PATTERN, Spread, Study
from worker.contract.errors import TaskError
from worker.contract.task import (
    BUNDLED_CHECKPOINT,
    Allocation,
    CheckpointRef,
    Choice,
    ComputeDtype,
    DraftPolicy,
    Eviction,
    Order,
    PageCache,
    Protocol,
    ReadPath,
    Rollback,
    Task,
    VerifyMode,
    VerifyRecords,
)

ALL_SLOTS = "all"
"""The word for a pool that holds every expert."""


class _Checkpoint(Strict):
    source: str
    mtp: str | None = None
    digest: str | None = None


class _Prompts(Strict):
    file: str
    ids: list[str] | None = None
    categories: list[str] | None = None


class _Engine(Strict):
    memory_budget_bytes: int | None = None
    allocation: Allocation | None = None
    compute_dtype: ComputeDtype | None = None
    prefill_chunk_tokens: int | None = None
    group_limit: int | None = None
    draft_policy: DraftPolicy | None = None
    draft_confidence: float | None = None
    reader_threads: int | None = None
    queue_depth: int | None = None
    read_path: ReadPath | None = None
    page_cache: PageCache | None = None
    prefetch: Choice | None = None
    prefetch_ranks: int | None = None
    keep_warm: Choice | None = None
    cache_limit_bytes: int | None = None
    verify_records: VerifyRecords | None = None


def _slots(value: object) -> object:
    if value == ALL_SLOTS or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f'expected a whole number from 1, or the word "{ALL_SLOTS}"')


_Slots = Annotated[int | str, BeforeValidator(_slots)]


class _Matrix(Strict):
    verify_width: list[int] | None = None
    slots_per_layer: list[_Slots] | None = None
    memory_budget_bytes: list[int] | None = None
    allocation: list[Allocation] | None = None
    verify_mode: list[VerifyMode] | None = None
    rollback: list[Rollback] | None = None
    eviction: list[Eviction] | None = None
    group_limit: list[int] | None = None
    draft_policy: list[DraftPolicy] | None = None
    draft_confidence: list[float] | None = None
    page_cache: list[PageCache] | None = None
    prefetch: list[Choice] | None = None


class _Protocol(Strict):
    max_tokens: int | None = None
    repeats: int | None = None
    warmup_tokens: int | None = None
    rewarm_tokens: int | None = None
    order: Order | None = None
    instrumented_repeats: int | None = None
    pin_hot_experts: int | None = None
    pin_calibration_tokens: int | None = None
    stop_at_eos: bool | None = None
    timeline: bool | None = None


class _Gates(Strict):
    ac_power: bool = True
    thermal_nominal: bool = True
    quiet: bool = True
    user_idle_s: float | None = Field(default=None, ge=0)


class _StudyFile(Strict):
    name: str
    description: str = ""
    require: list[str] | None = None
    machines: Spread = "each"
    checkpoint: _Checkpoint
    prompts: _Prompts
    engine: _Engine = _Engine()
    matrix: _Matrix = _Matrix()
    protocol: _Protocol = _Protocol()
    gates: _Gates | None = None


def load_study(path: Path) -> Study:
    """Read one study file.

    Raises: UsageError naming the file, the key and what is allowed there.
    """
    path = path.absolute()
    file = read_toml(path, _StudyFile)
    if not NAME_PATTERN.fullmatch(file.name):
        raise UsageError(
            f"{path}: name is {file.name!r}", "use at most 48 lower-case letters, digits, '.', '_' and '-', no space"
        )
    prompts = select_prompts(
        read_prompts(_beside(path, file.prompts.file)),
        ids=file.prompts.ids,
        categories=file.prompts.categories,
        where=str(path),
    )
    checkpoint = CheckpointRef(
        source=_checkpoint_path(path, file.checkpoint.source),
        mtp=None if file.checkpoint.mtp is None else _checkpoint_path(path, file.checkpoint.mtp),
        digest=file.checkpoint.digest,
    )
    _refuse_contradictions(path, file)
    try:
        fixed = {"checkpoint": checkpoint, "prompts": prompts, "protocol": Protocol(**_named(file.protocol))}
        tasks = tuple(_task(fixed | _named(file.engine) | axes) for axes in combinations(_axes(path, file.matrix)))
    except TaskError as error:
        raise UsageError(f"{path}: {error.message}", error.hint or "correct the value") from error
    return Study(
        name=file.name,
        description=file.description,
        tasks=tasks,
        path=path,
        require=tuple(file.require or ()),
        machines=file.machines,
        gates=None if file.gates is None else file.gates.model_dump(),
    )


def _refuse_contradictions(path: Path, file: _StudyFile) -> None:
    """Raises: UsageError for a setting that is named twice, or two that decide the same."""
    fixed, varied = _named(file.engine), _named(file.matrix)
    if twice := sorted(set(fixed) & set(varied)):
        raise UsageError(f"{path}: {twice[0]} stands in [engine] and in [matrix]", "keep one of them")
    if "slots_per_layer" in varied and "memory_budget_bytes" in fixed | varied:
        raise UsageError(
            f"{path}: matrix.slots_per_layer and memory_budget_bytes are both named",
            "keep one: the budget decides how many slots fit",
        )


def _task(settings: dict[str, Any]) -> Task:
    return Task(**settings)


def _named(table: Strict) -> dict[str, Any]:
    """The settings that the file names; the rest keep the task's defaults."""
    return {key: value for key, value in table.model_dump().items() if value is not None}


def _axes(path: Path, matrix: _Matrix) -> dict[str, list[Axis]]:
    axes: dict[str, list[Axis]] = {}
    for name, values in _named(matrix).items():
        if not values:
            raise UsageError(f"{path}: matrix.{name} is empty", "name at least one value, or leave the key out")
        if twice := [value for i, value in enumerate(values) if value in values[:i]]:
            raise UsageError(f"{path}: matrix.{name} names {twice[0]!r} twice", "name each value once")
        axes[name] = [None if name == "slots_per_layer" and value == ALL_SLOTS else value for value in values]
    return axes


def _beside(study: Path, name: str) -> Path:
    """Raises: UsageError for a home that does not exist."""
    try:
        return study.parent / Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{study}: prompts.file is {name!r}: there is no such home", "write the whole path") from error


def _checkpoint_path(study: Path, name: str) -> str:
    """Relative paths start at the study file; a path that starts with ~ stays, so each node reads its own home.

    Raises: UsageError for what can be no path.
    """
    if not name or "\0" in name:
        raise UsageError(f"{study}: checkpoint names {name!r}, which is no path", 'write "demo" or a directory')
    if name == BUNDLED_CHECKPOINT or name.startswith("~"):
        return name
    return str((study.parent / name).resolve())
