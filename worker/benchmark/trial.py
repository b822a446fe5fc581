"""Does reading ahead pay on this machine? A short trial decodes the same prompt without and with it, in turns.

Prefetch must be able to lose: where the disk is fast or the processor busy, predicting costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from worker.decode.generation import Request
from worker.decode.greedy import greedy
from worker.model.target import Target

TRIAL_TOKENS = 12
TRIAL_ORDER = (False, True, True, False, False, True)
"""Whether each measured generation reads ahead: both alternate in leading. One of each goes before, unmeasured."""
MIN_GAIN_RATIO = 0.03
"""Prefetch is kept only if it is faster by this much: less is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchDecision:
    """Whether to read ahead, and the trial's seconds per token where one decided."""

    on: bool
    trial_off_s: float | None = None
    trial_on_s: float | None = None


def try_prefetch(
    target: Target, request: Request, *, run: Callable[[Target, Request], float] | None = None
) -> PrefetchDecision:
    """Decode a few tokens without and with prefetch and decide. Mutates: the pools; leaves prefetch as decided.

    `run` returns the seconds per token of one generation.
    """
    run = run or _seconds_per_token
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for index, on in enumerate((False, True, *TRIAL_ORDER)):
        target.use_prefetch(on)
        measured = run(target, request)
        if index >= 2:
            seconds[on].append(measured)
    off_s, on_s = median(seconds[False]), median(seconds[True])
    decision = PrefetchDecision(on=on_s < off_s * (1 - MIN_GAIN_RATIO), trial_off_s=off_s, trial_on_s=on_s)
    target.use_prefetch(decision.on)
    return decision


def _seconds_per_token(target: Target, request: Request) -> float:
    generation = greedy(target, request)
    return generation.decode_s / max(1, len(generation.token_ids) - 1)
