"""Does reading ahead pay on this machine? A short trial decodes without and with it, in turns, within one generation.

Prefetch must be able to lose: where the disk is fast or the processor busy, predicting costs more than it saves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import mlx.core as mx

from worker.decode.generation import Request, read_ids
from worker.decode.prefill import prefill
from worker.model.target import Target

SEGMENT_TOKENS = 6
TRIAL_ORDER = (False, True, True, False, False, True)
"""Whether each measured segment reads ahead: both alternate in leading. One of each goes before, unmeasured."""
MIN_GAIN_RATIO = 0.03
"""Prefetch is kept only if it is faster by this much: less is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchDecision:
    """Whether to read ahead, and the trial's seconds per token where one decided."""

    on: bool
    trial_off_s: float | None = None
    trial_on_s: float | None = None


def try_prefetch(target: Target, request: Request, *, segment: Callable[[], float] | None = None) -> PrefetchDecision:
    """Decode some tokens without and with prefetch and decide. Mutates: the pools; leaves prefetch as decided.

    `segment` decodes the next few tokens and returns the seconds per token.
    """
    segment = segment or _Decoding(target, request)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for index, on in enumerate((False, True, *TRIAL_ORDER)):
        target.use_prefetch(on)
        measured = segment()
        if index >= 2:
            seconds[on].append(measured)
    off_s, on_s = median(seconds[False]), median(seconds[True])
    decision = PrefetchDecision(on=on_s < off_s * (1 - MIN_GAIN_RATIO), trial_off_s=off_s, trial_on_s=on_s)
    target.use_prefetch(decision.on)
    return decision


class _Decoding:
    """One greedy generation, some tokens at a time: the prompt is run once."""

    def __init__(self, target: Target, request: Request) -> None:
        self._target, self._cache = target, target.new_cache()
        hidden = prefill(target, request.prompt_ids, self._cache, request.prefill_chunk_tokens)
        self._token = self._choose(hidden)

    def __call__(self) -> float:
        start = time.perf_counter()
        for _ in range(SEGMENT_TOKENS):
            self._token = self._choose(self._target.forward(self._token, self._cache, "decode"))
        return (time.perf_counter() - start) / SEGMENT_TOKENS

    def _choose(self, hidden: mx.array) -> mx.array:
        token = mx.argmax(self._target.logits(hidden[:, -1:])[0, -1], keepdims=True)
        read_ids(token)
        return token
