"""Prefill: run the prompt through the target in chunks, so that its activations peak as in decode."""

from __future__ import annotations

import mlx.core as mx

from worker.model.cache import TargetCache
from worker.model.target import Target


def prefill(target: Target, prompt_ids: tuple[int, ...], cache: TargetCache, chunk_tokens: int) -> mx.array:
    """Fill the cache with the prompt and return its hidden states.

    Shapes: n prompt ids -> [1, n, hidden]. Mutates: the cache and the pools. Every chunk is evaluated before the next:
    a chunk's experts may be evicted by the next one's.
    """
    tokens = mx.array(prompt_ids)
    chunks = []
    for start in range(0, len(prompt_ids), chunk_tokens):
        hidden = target.forward(tokens[start : start + chunk_tokens], cache, "prefill")
        mx.eval(hidden, cache.arrays())
        chunks.append(hidden)
    return mx.concatenate(chunks, axis=1) if len(chunks) > 1 else chunks[0]
