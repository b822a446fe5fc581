"""How many slots each layer gets: as many as a task says, or as many as fit into its memory budget.

Under a budget, the slots are what weights, MTP head and working memory leave. They are split evenly, or by a trace: a
short greedy run over the task's own prompts, with pools at their floor, before the final pools are made.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np

from worker.checkpoint.layout import Manifest, check_slots, pool_floor
from worker.contract.errors import TaskError
from worker.contract.task import Task
from worker.decode.generation import Request
from worker.decode.greedy import greedy
from worker.experts.allocate import Curve, allocate, hit_curve
from worker.model.build import EngineSettings, build_target
from worker.model.footprint import Footprint, footprint

CALIBRATION_TOKENS = 64
"""Greedy tokens per prompt whose routing decides an allocation: two thirds of a default generation."""


def floor_of(task: Task, manifest: Manifest) -> int:
    """The fewest slots of a layer: what one verify forward may need, beside what will be pinned."""
    needed = pool_floor(verify_width=task.verify_width, experts_per_token=manifest.experts_per_token)
    return min(needed + task.protocol.pin_hot_experts, manifest.num_experts)


def uniform_slots(task: Task, manifest: Manifest) -> int:
    """The slots of every layer of a task without a budget. Raises: TaskError when they are too few or too many."""
    slots = manifest.num_experts if task.slots_per_layer is None else task.slots_per_layer
    check_slots(
        slots,
        verify_width=task.verify_width,
        experts_per_token=manifest.experts_per_token,
        num_experts=manifest.num_experts,
    )
    pinned = task.protocol.pin_hot_experts
    if pinned and slots < floor_of(task, manifest):
        needed = pool_floor(verify_width=task.verify_width, experts_per_token=manifest.experts_per_token)
        raise TaskError(
            f"pin_hot_experts {pinned} leaves {slots - pinned} of {slots} slots, a verify forward needs {needed}",
            f"pin {slots - needed} or fewer, or set more slots_per_layer",
        )
    return slots


def sizes_of(task: Task, directory: Path, manifest: Manifest, context_tokens: int) -> Footprint:
    """What this task's model takes in memory. Raises: CheckpointError."""
    return footprint(
        directory,
        manifest,
        verify_width=task.verify_width,
        prefill_chunk_tokens=task.prefill_chunk_tokens,
        context_tokens=context_tokens,
    )


def slots_within(task: Task, directory: Path, manifest: Manifest, context_tokens: int) -> int:
    """The slots of all layers together that the task's memory budget holds.

    Raises: TaskError with the arithmetic when it does not hold the floor; CheckpointError.
    """
    budget, floor, num_layers = task.memory_budget_bytes, floor_of(task, manifest), len(manifest.moe_layers)
    assert budget is not None
    sizes = sizes_of(task, directory, manifest, context_tokens)
    least = sizes.with_slots_bytes(floor * num_layers)
    if budget < least:
        raise TaskError(
            f"memory_budget_bytes is {budget}, but {_sum(sizes, floor, num_layers)} = {least} bytes",
            f"set memory_budget_bytes to {least} or more, or a smaller verify_width",
        )
    return min((budget - sizes.without_slots_bytes) // sizes.slot_bytes, num_layers * manifest.num_experts)


def split_evenly(task: Task, manifest: Manifest, num_slots: int) -> tuple[int, ...]:
    return _split(task, manifest, num_slots, None)


def split_by_trace(
    task: Task,
    directory: Path,
    manifest: Manifest,
    num_slots: int,
    *,
    settings: EngineSettings,
    requests: Sequence[Request],
    on_request: Callable[[int], None],
) -> tuple[int, ...]:
    """Give the slots to the layers where a greedy run over the requests shows them to be worth most.

    `settings` are those of that run's engine, which is gone when this returns. Raises: CheckpointError.
    """
    curves = _calibrate(directory, manifest, settings, requests, on_request)
    gc.collect()
    mx.clear_cache()
    return _split(task, manifest, num_slots, curves)


def _split(task: Task, manifest: Manifest, num_slots: int, curves: Sequence[Curve] | None) -> tuple[int, ...]:
    return allocate(
        curves,
        budget_slots=num_slots,
        floor=floor_of(task, manifest),
        num_layers=len(manifest.moe_layers),
        num_experts=manifest.num_experts,
    )


def _calibrate(
    directory: Path,
    manifest: Manifest,
    settings: EngineSettings,
    requests: Sequence[Request],
    on_request: Callable[[int], None],
) -> list[Curve]:
    target = build_target(directory, manifest, settings)
    target.telemetry.reset(recording=True)
    try:
        for index, request in enumerate(requests):
            on_request(index)
            greedy(target, replace(request, max_tokens=min(request.max_tokens, CALIBRATION_TOKENS)))
        _, routings = target.telemetry.take()
    finally:
        target.close()
    generation = [routing for routing in routings if routing.phase != "prefill"]
    return [
        hit_curve([np.unique(r.experts) for r in generation if r.layer == layer], manifest.num_experts)
        for layer in manifest.moe_layers
    ]


def _sum(sizes: Footprint, floor: int, num_layers: int) -> str:
    pool = floor * num_layers * sizes.slot_bytes
    return (
        f"weights {sizes.weights_bytes} + head {sizes.head_bytes} + working memory {sizes.working_bytes} + "
        f"floor pool {pool} ({floor} slots x {num_layers} layers x {sizes.slot_bytes})"
    )
