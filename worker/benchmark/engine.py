"""The engine benchmark: one process, plain mlx-lm and this engine at several pool sizes, interleaved, on forced ids.

Every arm is fed the same token ids, so every arm does the same work whatever its logits say; the next step is submitted
before the last one's result is read, as both engines do when they generate. A round runs every arm once, in an order that
alternates; ratios are taken within a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import mlx.core as mx
import numpy as np
from mlx_lm.models.qwen3_next import Model

from worker.experts.counters import PhaseCounters
from worker.model.target import Target

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One arm in one round. `chosen` are the most probable ids after each forced one: the evidence of equality."""

    seconds_per_token: float
    chosen: Ids
    counters: PhaseCounters | None


class Stepper(Protocol):
    """One generation of an arm."""

    def __call__(self, tokens: mx.array) -> mx.array:
        """Feed tokens and return the most probable id after each. Shapes: [width] -> [width]."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """A way of running the model. `start` begins a generation on the prompt."""

    name: str
    start: Callable[[Ids], Stepper]
    target: Target | None = None


def plain_arm(name: str, model: Model) -> Arm:
    def start(prompt: Ids) -> Stepper:
        cache = model.make_cache()
        mx.eval(model(mx.array(prompt)[None], cache=cache), [c.state for c in cache])
        return lambda tokens: mx.argmax(model(tokens[None], cache=cache)[0], axis=-1)

    return Arm(name, start)


def engine_arm(name: str, target: Target, *, recording: bool = False) -> Arm:
    """`recording` keeps the recurrent state of every position, as a verify forward does."""

    def start(prompt: Ids) -> Stepper:
        cache = target.new_cache()
        cache.set_recording(recording)
        tokens = mx.array(prompt)
        for begin in range(0, len(prompt), 64):
            mx.eval(target.forward(tokens[begin : begin + 64], cache, "prefill"), cache.arrays())
        return lambda tokens: mx.argmax(target.logits(target.forward(tokens, cache, "decode"))[0], axis=-1)

    return Arm(name, start, target)


def run_forced(arm: Arm, prompt: Ids, ids: Ids, clock: Callable[[], float] = time.perf_counter) -> Sample:
    """Feed the ids one at a time. Mutates: the arm's pools."""
    step = arm.start(prompt)
    tokens = [mx.array([token]) for token in ids]
    if arm.target is not None:
        arm.target.telemetry.reset()
        arm.target.reader.take()
    chosen: list[int] = []
    pending: mx.array | None = None
    start = clock()
    for token in tokens:
        following = step(token)
        mx.async_eval(following)
        if pending is not None:
            chosen.append(int(np.array(pending)[0]))
        pending = following
    assert pending is not None
    chosen.append(int(np.array(pending)[0]))
    seconds = (clock() - start) / len(ids)
    counters = arm.target.telemetry.take()[0].get("decode") if arm.target is not None else None
    return Sample(seconds_per_token=seconds, chosen=tuple(chosen), counters=counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """An arm over all rounds. Ratios are the reference arm's seconds over this arm's, per round: above 1 is faster."""

    name: str
    ms_per_token: tuple[float, ...]
    ratios: tuple[float, ...]
    same_ids: bool
    counters: PhaseCounters | None
    num_tokens: int

    @property
    def median_ms(self) -> float:
        return median(self.ms_per_token)

    @property
    def median_ratio(self) -> float:
        return median(self.ratios)


def interleave(
    arms: list[Arm],
    prompt: Ids,
    ids_of_round: list[Ids],
    *,
    settled: bool = True,
    on_round: Callable[[int], None] = lambda done: None,
) -> list[ArmSummary]:
    """Run every arm once per round; the first arm is the reference.

    An unmeasured pass over all rounds goes before, so that no expert is met for the first time; unless `settled` is false:
    then over the first round only.
    """
    samples: dict[str, list[Sample]] = {arm.name: [] for arm in arms}
    for arm in arms:
        for ids in ids_of_round if settled else ids_of_round[:1]:
            run_forced(arm, prompt, ids)
    for done, ids in enumerate(ids_of_round):
        for arm in arms if done % 2 == 0 else reversed(arms):
            samples[arm.name].append(run_forced(arm, prompt, ids))
        on_round(done + 1)
    reference = samples[arms[0].name]
    return [
        ArmSummary(
            name=arm.name,
            ms_per_token=tuple(1e3 * sample.seconds_per_token for sample in samples[arm.name]),
            ratios=tuple(
                theirs.seconds_per_token / ours.seconds_per_token
                for ours, theirs in zip(samples[arm.name], reference, strict=True)
            ),
            same_ids=all(a.chosen == b.chosen for a, b in zip(samples[arm.name], reference, strict=True)),
            counters=_sum([sample.counters for sample in samples[arm.name]]),
            num_tokens=sum(map(len, ids_of_round)),
        )
        for arm in arms
    ]


def _sum(counters: list[PhaseCounters | None]) -> PhaseCounters | None:
    known = [c for c in counters if c is not None]
    if not known:
        return None
    return PhaseCounters(**{name: sum(getattr(c, name) for c in known) for name in known[0].to_row(prefetching=True)})


def width_costs(
    plain: Arm, ours: Arm, prompt: Ids, ids: Ids, *, widths: tuple[int, ...], rounds: int
) -> list[tuple[int, float, float, float]]:
    """Time forwards of several widths: (width, plain ms, ours ms, ours over plain), medians over rounds, interleaved.

    `ours` should record, as a verify forward does.
    """
    found = []
    for width in widths:
        ms: dict[str, list[float]] = {plain.name: [], ours.name: []}
        for done in range(rounds + 1):
            for arm in (plain, ours) if done % 2 == 0 else (ours, plain):
                seconds = _time_width(arm, prompt, ids, width)
                if done:
                    ms[arm.name].append(1e3 * seconds)
        ratio = median(b / a for a, b in zip(ms[plain.name], ms[ours.name], strict=True))
        found.append((width, median(ms[plain.name]), median(ms[ours.name]), ratio))
    return found


def _time_width(arm: Arm, prompt: Ids, ids: Ids, width: int, num_forwards: int = 8) -> float:
    step = arm.start(prompt)
    groups = [mx.array(ids[i * width : (i + 1) * width]) for i in range(num_forwards)]
    mx.eval(step(groups[0]))
    start = time.perf_counter()
    for group in groups[1:]:
        mx.eval(step(group))
    return (time.perf_counter() - start) / (num_forwards - 1)


def rollback_share(
    target: Target, prompt: Ids, ids: Ids, *, width: int = 3, num_forwards: int = 30
) -> tuple[float, float]:
    """What bringing the caches back by one token costs, as shares of the verify forward before it; medians.

    The first is the call, as a generation makes it; the second waits for the device as well, which no generation does.

    Mutates: the pools.
    """
    cache = target.new_cache()
    mx.eval(target.forward(mx.array(prompt), cache, "prefill"), cache.arrays())
    cache.set_recording(True)
    shares: list[tuple[float, float]] = []
    for index in range(num_forwards + 1):
        tokens = mx.array([ids[(index * width + i) % len(ids)] for i in range(width)])
        start = time.perf_counter()
        chosen = mx.argmax(target.logits(target.forward(tokens, cache, "verify"))[0], axis=-1)
        mx.eval(chosen, cache.arrays())
        verified = time.perf_counter()
        cache.commit(width - 1, forward_width=width)
        called = time.perf_counter()
        mx.eval(cache.arrays())
        if index:
            forward_s = verified - start
            shares.append(((called - verified) / forward_s, (time.perf_counter() - verified) / forward_s))
    return median(call for call, _ in shares), median(waited for _, waited in shares)


def zipf_ids(vocab_size: int, count: int, seed: int, exponent: float = 1.1) -> Ids:
    """Token ids with a Zipf distribution: a few are common, most are rare, as in text."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, vocab_size + 1) ** exponent
    order = rng.permutation(vocab_size)
    return tuple(int(i) for i in order[rng.choice(vocab_size, size=count, p=weights / weights.sum())])
