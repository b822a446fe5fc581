"""Greedy decoding of the streaming target, one token per forward."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import mlx.core as mx

from worker.decode.generation import Generation, Request, StopReason, read_ids
from worker.decode.prefill import prefill
from worker.model.target import Target


class LogitsObserver(Protocol):
    """Sees the logits of every emitted token; used in instrumented repeats only, because looking costs time."""

    def __call__(self, logits: mx.array) -> None:
        """Shapes: [vocabulary]."""
        ...


def greedy(
    target: Target,
    request: Request,
    *,
    observe: LogitsObserver | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Generation:
    """Emit the most probable token until a stop token or the limit.

    When all experts are resident the next forward is submitted before the current token is read, as mlx-lm does; a
    streaming forward waits for the host anyway. Mutates: the target's pools. Raises: CheckpointError.
    """
    start = clock()
    cache = target.new_cache()
    hidden = prefill(target, request.prompt_ids, cache, request.prefill_chunk_tokens)
    ahead = target.is_resident and observe is None

    def choose(hidden: mx.array) -> mx.array:
        logits = target.logits(hidden[:, -1:])[0, -1]
        if observe is not None:
            observe(logits)
        token = mx.argmax(logits, keepdims=True)
        mx.async_eval(token, cache.arrays())
        return token

    token = choose(hidden)
    token_ids = read_ids(token)
    first_at = clock()
    stop: StopReason | None = "eos" if token_ids[0] in request.stop_ids else None
    following = None
    while stop is None:
        token = following if following is not None else choose(target.forward(token, cache, "decode"))
        following = None
        if ahead and len(token_ids) + 1 < request.max_tokens:
            following = choose(target.forward(token, cache, "decode"))
        token_ids += read_ids(token)
        if token_ids[-1] in request.stop_ids:
            stop = "eos"
        elif len(token_ids) >= request.max_tokens:
            stop = "length"
    end = clock()
    if following is not None:
        target.telemetry.forget_last_forward()
    return Generation(
        token_ids=tuple(token_ids),
        stop_reason=stop,
        ttft_s=first_at - start,
        prefill_s=first_at - start,
        decode_s=end - first_at,
    )
