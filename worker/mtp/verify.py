"""Verification: the target scores the pending token and the drafts, in one forward or one by one."""

from __future__ import annotations

import mlx.core as mx

from worker.contract.task import VerifyMode
from worker.model.cache import Positions, RecurrentCache, TargetCache
from worker.model.target import Target


def verify(target: Target, tokens: mx.array, cache: TargetCache, mode: VerifyMode) -> tuple[mx.array, mx.array]:
    """Score the tokens and return the hidden states and the logits after each of them.

    Shapes: tokens [width] -> ([1, width, hidden], [1, width, vocabulary]).
    `batched` is one forward of this width; `stepwise` is as many forwards of width one, which is what greedy decoding
    computes, bit for bit. When the cache records, it can commit any prefix of the tokens afterwards.
    Mutates: the cache and the pools.
    """
    if mode == "batched":
        hidden = target.forward(tokens, cache, "verify")
        return hidden, target.logits(hidden)
    hiddens, logits = [], []
    recorded: dict[int, Positions] = {}
    for index in range(tokens.shape[0]):
        hidden = target.forward(tokens[index : index + 1], cache, "verify")
        hiddens.append(hidden)
        logits.append(target.logits(hidden))
        for layer_index, layer in enumerate(cache.layers):
            if isinstance(layer, RecurrentCache) and layer.positions is not None:
                earlier = recorded.get(layer_index)
                recorded[layer_index] = earlier.followed_by(layer.positions) if earlier else layer.positions
    for layer_index, positions in recorded.items():
        layer = cache.layers[layer_index]
        assert isinstance(layer, RecurrentCache)
        layer.record(positions)
    return mx.concatenate(hiddens, axis=1), mx.concatenate(logits, axis=1)
