"""The stock anchor: plain mlx-lm against this engine on the same checkpoint, in one process, interleaved.

A speed means little without the plain engine beside it on the same machine, where the model fits. Each round runs every
arm once, in an order that alternates; an arm's ratio is the median over the rounds of its speed over the plain one's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.qwen3_next import Model
from mlx_lm.utils import load_model

from worker.checkpoint.prepare import MLX_DTYPES
from worker.checkpoint.resolve import Prepared
from worker.decode.generation import Generation, Request
from worker.decode.greedy import greedy
from worker.model.build import EngineSettings, build_target
from worker.model.target import Target

PLAIN = "plain mlx-lm"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm over all rounds. `ratio` is None for the plain arm's own row; counts are per decoded token of the last round."""

    name: str
    tok_s: tuple[float, ...]
    ratios: tuple[float, ...]
    same_tokens: bool
    misses_per_token: float | None
    disk_bytes_per_token: float | None
    route_wait_s_per_token: float | None
    read_wait_s_per_token: float | None

    @property
    def median_tok_s(self) -> float:
        return median(self.tok_s)

    @property
    def median_ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None


@dataclass(slots=True)
class _Arm:
    name: str
    run: Callable[[], Generation]
    target: Target | None
    generations: list[Generation]


def compare_with_plain(
    source: Path,
    prepared: Prepared,
    request: Request,
    *,
    slots: tuple[int, ...],
    rounds: int,
    on_round: Callable[[int], None] = lambda done: None,
) -> tuple[ArmResult, ...]:
    """Run every arm `rounds` times after one unmeasured round. Raises: CheckpointError, TaskError."""
    plain = load_plain(source, MLX_DTYPES[prepared.manifest.compute_dtype])
    arms = [_Arm(name=PLAIN, run=lambda: generate_plain(plain, request), target=None, generations=[])]
    for count in slots:
        target = build_target(prepared.directory, prepared.manifest, EngineSettings(slots_per_layer=count))
        name = f"{count} of {prepared.manifest.num_experts} slots"
        arms.append(_Arm(name=name, run=_greedy_arm(target, request), target=target, generations=[]))
    for arm in arms:
        arm.run()
    for done in range(rounds):
        for arm in arms if done % 2 == 0 else reversed(arms):
            if arm.target is not None:
                arm.target.telemetry.reset()
            arm.generations.append(arm.run())
        on_round(done + 1)
    results = tuple(_result(arm, arms[0]) for arm in arms)
    for arm in arms[1:]:
        assert arm.target is not None
        arm.target.close()
    return results


def load_plain(source: Path, dtype: mx.Dtype) -> Model:
    """The MLX-format checkpoint as mlx-lm loads it, computing in `dtype`, all experts in memory."""
    model, _ = load_model(source)
    assert isinstance(model, Model)
    model.set_dtype(dtype)
    mx.eval(model.parameters())
    return model


def generate_plain(model: Model, request: Request, clock: Callable[[], float] = time.perf_counter) -> Generation:
    """Greedy decoding by mlx-lm's own loop, on the clock of `Generation`."""
    start = clock()
    ids: list[int] = []
    times: list[float] = []
    prompt = mx.array(request.prompt_ids)
    for token, _ in generate_step(
        prompt, model, max_tokens=request.max_tokens, prefill_step_size=request.prefill_chunk_tokens
    ):
        ids.append(int(token))
        times.append(clock())
    return Generation(
        token_ids=tuple(ids),
        stop_reason="length",
        ttft_s=times[0] - start,
        prefill_s=times[0] - start,
        decode_s=times[-1] - times[0],
    )


def _greedy_arm(target: Target, request: Request) -> Callable[[], Generation]:
    return lambda: greedy(target, request)


def _result(arm: _Arm, plain: _Arm) -> ArmResult:
    speeds = tuple(_tok_s(generation) for generation in arm.generations)
    tokens = len(arm.generations[-1].token_ids) - 1
    counters = None
    if arm.target is not None:
        counters = arm.target.telemetry.take()[0]["decode"]
    return ArmResult(
        name=arm.name,
        tok_s=speeds,
        ratios=()
        if arm is plain
        else tuple(ours / _tok_s(theirs) for ours, theirs in zip(speeds, plain.generations, strict=True)),
        same_tokens=all(generation.token_ids == plain.generations[0].token_ids for generation in arm.generations),
        misses_per_token=counters.num_disk_loads / tokens if counters else None,
        disk_bytes_per_token=counters.disk_bytes / tokens if counters else None,
        route_wait_s_per_token=counters.route_wait_s / tokens if counters else None,
        read_wait_s_per_token=counters.read_wait_s / tokens if counters else None,
    )


def _tok_s(generation: Generation) -> float:
    return (len(generation.token_ids) - 1) / generation.decode_s
