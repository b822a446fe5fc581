"""The forward of a streaming model: layers one by one, or in groups that the host looks at once.

A group runs on the slot maps of the device. When its routed ids arrive and every expert was there, its results stand. If
not, the layers from the first miss on are undone (their inputs and old caches still exist: arrays are immutable) and run
again, the missing layer by the host's way. Nothing is ever dropped or approximated: the reference is the host's way for
every layer (tests/unit/worker/model/test_forward.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import mlx.core as mx
import numpy as np
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.qwen3_next import Model
from numpy.typing import NDArray

from worker.experts.counters import Telemetry
from worker.experts.pool import ABSENT, LayerPool, distinct
from worker.experts.routing import RoutingMode
from worker.model.cache import LayerCache, TargetCache, restore_layer, snapshot_layer
from worker.model.groups import GroupTimes, group_end

_NO_GROUPS = 1
_KERNELS_PER_LAYER = 40


class LayerwiseForward:
    """Runs the backbone of one model. Owns the estimates that decide the groups."""

    def __init__(
        self,
        model: Model,
        pools: tuple[LayerPool, ...],
        mode: RoutingMode,
        telemetry: Telemetry,
        *,
        times: GroupTimes,
        group_limit: int | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model, self._mode, self._telemetry, self._clock = model, mode, telemetry, clock
        self._pool_of = {pool.layer: pool for pool in pools}
        self.times = times
        self.group_limit = group_limit
        self.misses = mode.misses
        for pool in pools:
            # Not a method of this object: pool and forward would keep each other, and the slots, alive.
            pool.on_admit = self.misses.admitted
            self.misses.start[pool.layer] = 0.0 if pool.holds_all else 1.0

    def __call__(self, tokens: mx.array, cache: TargetCache, *, grouped: bool) -> mx.array:
        """Shapes: tokens [width] -> hidden states after the final norm [1, width, hidden]. Mutates: cache, pools."""
        backbone = self._model.model
        x = backbone.embed_tokens(tokens[None])
        masks = self._masks(x, cache)
        self.misses.width = tokens.shape[0]
        may_group = grouped and self.group_limit != _NO_GROUPS
        limit = self.group_limit if may_group and self.times.allow(self.misses.width) else _NO_GROUPS
        began, any_group = self._clock(), False
        layer, num_layers = 0, len(cache.layers)
        while layer < num_layers:
            end = self._group_end(layer, limit)
            if end == layer + 1:
                learns = may_group and not any_group and layer in self._pool_of
                run = self._run_and_learn if learns else self._run_layer
                x = run(layer, x, masks, cache)
                layer = end
            else:
                any_group = True
                x, layer = self._run_group(x, layer, end, masks, cache)
        if may_group:
            self.times.forward_ran(self.misses.width, self._clock() - began, grouped=any_group)
        return backbone.norm(x)

    def _run_layer(self, layer: int, x: mx.array, masks: list[mx.array | None], cache: TargetCache) -> mx.array:
        with self._telemetry.timeline.span("layer", layer):
            return self._model.layers[layer](x, masks[layer], cache.layers[layer])

    def _group_end(self, layer: int, limit: int | None) -> int:
        if limit == _NO_GROUPS:
            return layer + 1
        estimates = self.misses.of(self.misses.width)
        return group_end(layer, estimates.tolist(), self.times.costs, limit=limit)

    def _run_and_learn(self, layer: int, x: mx.array, masks: list[mx.array | None], cache: TargetCache) -> mx.array:
        """Run a layer by itself and note what it took. Not for a prompt's: they tell nothing about a generation's."""
        counters, began = self._telemetry.current, self._clock()
        before = counters.num_routed - counters.num_hits
        x = self._run_layer(layer, x, masks, cache)
        if counters.num_routed - counters.num_hits == before:
            self.times.layer_ran_alone(self._clock() - began)
        return x

    def _run_group(
        self, x: mx.array, start: int, end: int, masks: list[mx.array | None], cache: TargetCache
    ) -> tuple[mx.array, int]:
        """Run layers [start, end) on the slot maps; return the result and the first layer that is still to run."""
        began = self._clock()
        inputs, before = [], []
        self._mode.optimistic = True
        try:
            for layer in range(start, end):
                inputs.append(x)
                before.append(snapshot_layer(cache.layers[layer]))
                x = self._run_layer(layer, x, masks, cache)
                if self._mode.overlap:
                    mx.async_eval(x)
        finally:
            self._mode.optimistic = False
        routed = self._mode.take()
        if not routed:
            return x, end
        ids = self._read(x, routed)
        missed = self._settle(routed, ids)
        self.times.group_ran(end - start, self._clock() - began)
        if missed is None:
            return x, end
        for layer in range(missed, end):
            restore_layer(cache.layers[layer], before[layer - start])
            if layer in self._pool_of:
                self._pool_of[layer].forget_reader()
        self._telemetry.forget_layers_from(missed)
        self._telemetry.current.num_repairs += 1
        return self._run_layer(missed, inputs[missed - start], masks, cache), missed + 1

    def _read(self, x: mx.array, routed: list[tuple[LayerPool, mx.array]]) -> NDArray[np.int64]:
        """The routed ids of all layers of a group on the host. Shapes: -> [layers, width, k]."""
        start = self._clock()
        stacked = mx.concatenate([indices for _, indices in routed])
        mx.async_eval(stacked, x)
        ids = np.array(stacked).astype(np.int64)
        end = self._clock()
        self._telemetry.current.route_wait_s += end - start
        self._telemetry.timeline.add("route_wait", start, end)
        return ids

    def _settle(self, routed: list[tuple[LayerPool, mx.array]], ids: NDArray[np.int64]) -> int | None:
        """Count the layers before the first miss and return the layer that missed, or None."""
        for (pool, _), layer_ids in zip(routed, ids, strict=True):
            if (pool.slot_of[layer_ids] == ABSENT).any():
                return pool.layer
            experts = distinct(layer_ids, pool.num_experts)
            pool.used(experts)
            self.misses.admitted(pool.layer, experts.size, experts.size)
            self._telemetry.routed(
                pool.layer,
                layer_ids,
                num_union=experts.size,
                num_hits=experts.size,
                payload_bytes=pool.file.payload_bytes,
                fast=True,
            )
        return None

    def _masks(self, x: mx.array, cache: TargetCache) -> list[mx.array | None]:
        """Full attention is causal; recurrent layers need no mask without padding."""
        attention: mx.array | None = None
        found: list[mx.array | None] = []
        for layer, layer_cache in zip(self._model.layers, cache.layers, strict=True):
            if not layer.is_linear and attention is None:
                attention = _attention_mask(x, layer_cache)
            found.append(None if layer.is_linear else attention)
        return found


def _attention_mask(x: mx.array, cache: LayerCache) -> mx.array | None:
    return create_attention_mask(x, cache)  # type: ignore[return-value]


def measure_read_cost(num_reads: int = 12, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a host read after every layer's worth of kernels costs on this backend: median of seven pairs.

    Most of it is not the transfer: while the host waits, nothing is queued behind, and the queue must fill again.
    """

    def chain(read: bool) -> float:
        x = mx.zeros((8, 64))
        mx.eval(x)
        start = clock()
        for _ in range(num_reads):
            for _ in range(_KERNELS_PER_LAYER):
                x = mx.sin(x)
            if read:
                np.array(x[0, :8])
        mx.eval(x)
        return (clock() - start) / num_reads

    chain(True), chain(False)
    return max(0.0, float(np.median([chain(True) - chain(False) for _ in range(7)])))
