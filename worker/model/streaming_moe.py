"""The routed experts of one layer, streamed: mlx-lm's own SwitchGLU computing over slots instead of experts.

    routed ids -> (host) -> distinct experts -> pool.admit -> slot ids -> SwitchGLU over the slot arrays

When every expert is resident, slot e holds expert e, the ids never visit the host, and the graph is exactly mlx-lm's. In a
group of layers (forward.py) the slots come from a map on the device, and the host looks at the ids afterwards.
The reference that both must equal is plain mlx-lm on the same checkpoint (tests/unit/worker/decode/test_greedy.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.qwen3_next import Qwen3NextSparseMoeBlock
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchGLU
from numpy.typing import NDArray

from worker.checkpoint.layout import ExpertQuantization
from worker.experts.pool import ABSENT, Admitted, LayerPool, distinct
from worker.experts.routing import RoutingMode
from worker.model.foresight import NextRouter


class RoutedExpertsPlaceholder(nn.Module):
    """Stands where the routed experts go while the trunk is loaded; has no parameters and cannot be called."""

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:  # noqa: ARG002 - the signature it stands for
        raise AssertionError("the routed experts were not installed")


class StreamingMoeBlock(Qwen3NextSparseMoeBlock):
    """mlx-lm's MoE block, which on request submits what does not depend on the host before the host is asked."""

    def __call__(self, x: mx.array) -> mx.array:
        """Shapes: [1, width, hidden] -> [1, width, hidden]. mlx-lm's own operations, submitted in another order."""
        routed: StreamingSwitchGLU = self.switch_mlp  # type: ignore[assignment]
        if not routed.overlaps:
            return super().__call__(x)
        gates = mx.softmax(self.gate(x), axis=-1, precise=True)
        indices = mx.argpartition(gates, kth=-self.top_k, axis=-1)[..., -self.top_k :]
        scores = mx.take_along_axis(gates, indices, axis=-1)
        if self.norm_topk_prob:
            scores = scores / scores.sum(axis=-1, keepdims=True)
        shared = mx.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        output = (routed(x, indices, beside=(scores, shared)) * scores[..., None]).sum(axis=-2) + shared
        mx.async_eval(output)
        return output


class StreamingSwitchGLU(SwitchGLU):
    """SwitchGLU over the slot arrays of a pool."""

    def __init__(
        self,
        pool: LayerPool,
        quantization: ExpertQuantization,
        routing: RoutingMode,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(1, 1, 1)
        for projection in ("gate_proj", "up_proj", "down_proj"):
            setattr(self, projection, _SlotLinear(pool, projection, quantization))
        self._pool = pool
        self._routing = routing
        self._clock = clock
        self.next_router: NextRouter | None = None
        """Predicts for the layer that comes next, where that one streams."""

    @property
    def overlaps(self) -> bool:
        """Whether this layer asks the host in this forward while the device could work on."""
        return self._routing.overlap and not self._routing.optimistic and not self._pool.holds_all

    def __call__(self, x: mx.array, indices: mx.array, beside: tuple[mx.array, ...] = ()) -> mx.array:
        """Shapes: x [1, width, hidden], indices [1, width, k] -> [1, width, k, hidden].

        Where the device is to work while the host waits, it computes `beside`, and a guess on the slot map.
        """
        pool = self._pool
        if pool.holds_all:
            pool.telemetry.defer(pool.layer, indices)
            return super().__call__(x, indices)
        if self._routing.optimistic:
            self._routing.left_behind.append((pool, indices))
            return self._on_slot_map(x, indices)
        ahead = self.next_router if self.next_router is not None and self.next_router.wants() else None
        wanted = indices if ahead is None else mx.concatenate([indices, ahead.predict(x)], axis=-1)
        guess = self._submit(x, indices, wanted, beside) if self._routing.overlap else None
        found = self._read(wanted)
        ids, predicted = found[:, : indices.shape[-1]], found[:, indices.shape[-1] :]
        experts = distinct(ids, pool.num_experts)
        if pool.prefetcher is not None:
            pool.prefetcher.compare(pool.layer, ids, experts)
        if experts.size <= pool.num_slots and pool.fits(experts):
            if guess is not None and (pool.slot_of[experts] == ABSENT).any():
                guess = None
            admitted = pool.admit(experts, on_submitted=None if ahead is None else partial(ahead.submit, predicted))
            output = self._on_slot_map(x, indices) if guess is None else guess
        else:
            output, admitted = self._in_groups(x, ids, experts)
        pool.telemetry.routed(
            pool.layer,
            ids,
            num_union=experts.size,
            num_hits=admitted.num_hits,
            num_late=admitted.num_late,
            payload_bytes=pool.file.payload_bytes,
        )
        return output

    def _on_slot_map(self, x: mx.array, indices: mx.array) -> mx.array:
        """Compute on the slots that the map names. Right if every expert is resident. Mutates: the pool's note of it."""
        output = super().__call__(x, self._pool.device_map()[indices])
        self._pool.will_be_read_by(output)
        return output

    def _submit(
        self, x: mx.array, indices: mx.array, wanted: mx.array, beside: tuple[mx.array, ...]
    ) -> mx.array | None:
        """Have the device compute first what the host waits for, then the rest; return the guess, where one is made."""
        mx.async_eval(wanted)
        guess = self._on_slot_map(x, indices) if self._routing.expects_hits(self._pool.layer) else None
        mx.async_eval(*beside, *([] if guess is None else [guess]))
        return guess

    def _read(self, wanted: mx.array) -> NDArray[np.int64]:
        """What the host asked for. Shapes: [1, width, n] -> [width, n]."""
        start = self._clock()
        found = np.array(wanted).astype(np.int64)[0]
        end = self._clock()
        self._pool.telemetry.current.route_wait_s += end - start
        self._pool.telemetry.timeline.add("route_wait", start, end, layer=self._pool.layer)
        return found

    def _in_groups(self, x: mx.array, ids: NDArray[np.int64], experts: NDArray[np.int64]) -> tuple[mx.array, Admitted]:
        """Run a forward that routes to more experts than fit at once: one group of experts after another.

        Every (token, expert) pair is computed by the same kernel as in one piece, and the pairs are put back in routing
        order before anything is summed, so the result is the same. Resident experts come first: they are hits.
        """
        pool = self._pool
        resident = pool.slot_of[experts] != ABSENT
        ordered = np.concatenate([experts[resident], experts[~resident]])
        capacity = pool.num_unpinned_slots
        num_experts_per_token = ids.shape[1]
        flat = x.reshape(-1, x.shape[-1])
        pairs = ids.reshape(-1)
        outputs, places = [], []
        num_hits = num_late = 0
        for start in range(0, ordered.size, capacity):
            group = ordered[start : start + capacity]
            admitted = pool.admit(group)
            num_hits, num_late = num_hits + admitted.num_hits, num_late + admitted.num_late
            place = np.flatnonzero(np.isin(pairs, group))
            rows = flat[mx.array(place // num_experts_per_token)]
            slots = mx.array(pool.slot_of[pairs[place]].astype(np.uint32))
            output = super().__call__(rows, slots[:, None])
            mx.eval(output)
            outputs.append(output.reshape(len(place), -1))
            places.append(place)
        order = np.argsort(np.concatenate(places))
        joined = mx.concatenate(outputs)[mx.array(order)]
        return joined.reshape(*x.shape[:-1], num_experts_per_token, -1), Admitted(num_hits, num_late)


class _SlotLinear(QuantizedSwitchLinear):
    """A quantized switch layer whose experts are the pool's slots."""

    def __init__(self, pool: LayerPool, projection: str, quantization: ExpertQuantization) -> None:
        nn.Module.__init__(self)
        self.bits, self.group_size, self.mode = quantization.bits, quantization.group_size, quantization.mode
        self.weight = pool.slots.arrays[f"{projection}.weight"]
        self.scales = pool.slots.arrays[f"{projection}.scales"]
        self.biases = pool.slots.arrays.get(f"{projection}.biases")
        self.global_scale = None
        self.freeze()
