"""Run one generation of the protocol and take down everything that was counted and timed around it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.benchmark.optimum import PoolStart, optimal_by_layer_and_width, pool_start
from worker.benchmark.protocol import Measurement
from worker.benchmark.session import Session, TokenizedPrompt
from worker.decode.generation import Generation
from worker.decode.greedy import greedy
from worker.decode.prefill import prefill
from worker.experts.counters import Phase, PhaseCounters, Routing
from worker.experts.prefetch import PrefetchCounters
from worker.experts.reader import ReaderCounters
from worker.measure.memory import MemoryReading, PeakByPhase
from worker.measure.stages import BarrierClock, Stage, StageClock
from worker.measure.timeline import Span, Timeline
from worker.mtp.generate import Step, speculate
from worker.mtp.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one generation left. `logits` are those of every emitted token, kept in instrumented greedy repeats only."""

    measurement: Measurement
    started_at: datetime
    generation: Generation
    steps: tuple[Step, ...]
    stage_s: dict[Stage, float] | None
    counters: dict[Phase, PhaseCounters]
    routings: tuple[Routing, ...]
    optimal_hits: dict[tuple[int, int], int] | None
    """Per (layer, forward width) of instrumented repeats, see optimum.py."""
    logits: tuple[NDArray[np.float32], ...]
    logits_dtype: str
    reader: ReaderCounters
    prefetch: PrefetchCounters | None
    """None where nothing was to be read ahead."""
    memory: MemoryReading
    load_before: float
    load_after: float
    spans: tuple[Span, ...]
    """Of a generation that runs for its timeline; empty elsewhere."""


@dataclass(slots=True)
class _KeepLogits:
    """Copies the logits of every emitted token to the host."""

    kept: list[NDArray[np.float32]] = field(default_factory=list)
    dtype: str = ""

    def __call__(self, logits: mx.array) -> None:
        self.dtype = str(logits.dtype).removeprefix("mlx.core.")
        self.kept.append(np.array(logits.astype(mx.float32)))


def measure(session: Session, prompt: TokenizedPrompt, measurement: Measurement) -> Record:
    """Reset every counter, run the path once, and read every counter. Raises: CheckpointError."""
    target = session.target
    instrumented = measurement.kind == "instrumented"
    starts: list[PoolStart] = []
    target.prefetcher.clear()
    target.prefetcher.take()
    target.reader.take()
    mx.clear_cache()
    peaks = PeakByPhase()

    def on_generation() -> None:
        peaks.generation_begins()
        if instrumented:
            starts.extend(map(pool_start, target.pools))

    load_before = os.getloadavg()[0]
    started_at = datetime.fromtimestamp(time.time(), tz=UTC)
    request = session.request(prompt, measurement.max_tokens)
    observer = _KeepLogits()
    steps: tuple[Step, ...] = ()
    stages: StageClock = BarrierClock() if instrumented else StageClock()
    timeline = Timeline() if measurement.kind == "timeline" else None
    target.telemetry.reset(
        recording=instrumented or measurement.kind == "calibrate", on_generation=on_generation, timeline=timeline
    )
    if measurement.path == "greedy":
        generation = greedy(target, request, observe=observer if instrumented else None)
    else:
        result = speculate(target, session.head, request, session.speculation, stages=stages)
        generation, steps = result.generation, result.steps
    memory = peaks.read()
    load_after = os.getloadavg()[0]
    target.prefetcher.clear()
    foreseen = target.prefetcher.take()
    counters, routings = target.telemetry.take()
    return Record(
        measurement=measurement,
        started_at=started_at,
        generation=generation,
        steps=steps,
        stage_s=stages.seconds if measurement.path == "speculative" else None,
        counters=counters,
        routings=routings,
        optimal_hits=optimal_by_layer_and_width(routings, starts),
        logits=tuple(observer.kept),
        logits_dtype=observer.dtype,
        reader=target.reader.take(),
        prefetch=foreseen if session.prefetch.on else None,
        memory=memory,
        load_before=load_before,
        load_after=load_after,
        spans=timeline.spans if timeline else (),
    )


def forced_logits(session: Session, prompt: TokenizedPrompt, token_ids: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Score given ids in verify forwards of the task's width, as speculation would with every draft right.

    Returns one row per id but the last: the logits after it. Mutates: the pools.
    """
    target, width = session.target, session.speculation.verify_width
    cache = target.new_cache()
    prefill(target, prompt.token_ids, cache, session.task.prefill_chunk_tokens)
    cache.set_recording(True)
    rows: list[NDArray[np.float32]] = []
    for start in range(0, len(token_ids) - 1, width):
        tokens = mx.array(token_ids[start : start + width])
        _, logits = verify(target, tokens, cache, session.speculation.verify_mode)
        rows += list(np.array(logits[0].astype(mx.float32)))
        cache.commit(tokens.shape[0], forward_width=tokens.shape[0])
        mx.eval(cache.arrays())
    return rows[: len(token_ids) - 1]
