"""The routed experts of one layer, streamed: mlx-lm's own SwitchGLU computing over slots instead of experts.

    routed ids -> (host) -> distinct experts -> pool.admit -> slot ids -> SwitchGLU over the slot arrays

When every expert is resident, slot e holds expert e, the ids never visit the host, and the graph is exactly mlx-lm's. In a
group of layers (forward.py) the slots come from a map on the device, and the host looks at the ids afterwards.
The reference that both must equal is plain mlx-lm on the same checkpoint (tests/e2e/test_same_tokens.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchGLU
from numpy.typing import NDArray

from worker.checkpoint.layout import ExpertQuantization
from worker.experts.pool import ABSENT, LayerPool, distinct
from worker.experts.routing import RoutingMode


class RoutedExpertsPlaceholder(nn.Module):
    """Stands where the routed experts go while the trunk is loaded; has no parameters and cannot be called."""

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:  # noqa: ARG002 - the signature it stands for
        raise AssertionError("the routed experts were not installed")


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

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        """Shapes: x [1, width, hidden], indices [1, width, k] -> [1, width, k, hidden]."""
        pool = self._pool
        if pool.holds_all:
            pool.telemetry.defer(pool.layer, indices)
            return super().__call__(x, indices)
        if self._routing.optimistic:
            self._routing.left_behind.append((pool, indices))
            output = super().__call__(x, pool.device_map()[indices])
            pool.will_be_read_by(output)
            return output
        start = self._clock()
        ids = np.array(indices).astype(np.int64).reshape(-1, indices.shape[-1])
        end = self._clock()
        pool.telemetry.current.route_wait_s += end - start
        pool.telemetry.timeline.add("route_wait", start, end, layer=pool.layer)
        experts = distinct(ids, pool.num_experts)
        if experts.size <= pool.num_slots and pool.fits(experts):
            num_hits = pool.admit(experts)
            slots = mx.array(pool.slot_of[ids].astype(np.uint32)).reshape(indices.shape)
            output = super().__call__(x, slots)
            pool.will_be_read_by(output)
        else:
            output, num_hits = self._in_groups(x, ids, experts)
        pool.telemetry.routed(
            pool.layer, ids, num_union=experts.size, num_hits=num_hits, payload_bytes=pool.file.payload_bytes
        )
        return output

    def _in_groups(self, x: mx.array, ids: NDArray[np.int64], experts: NDArray[np.int64]) -> tuple[mx.array, int]:
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
        for start in range(0, ordered.size, capacity):
            group = ordered[start : start + capacity]
            pool.admit(group)
            place = np.flatnonzero(np.isin(pairs, group))
            rows = flat[mx.array(place // num_experts_per_token)]
            slots = mx.array(pool.slot_of[pairs[place]].astype(np.uint32))
            output = super().__call__(rows, slots[:, None])
            mx.eval(output)
            outputs.append(output.reshape(len(place), -1))
            places.append(place)
        order = np.argsort(np.concatenate(places))
        joined = mx.concatenate(outputs)[mx.array(order)]
        return joined.reshape(*x.shape[:-1], num_experts_per_token, -1), int(resident.sum())


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
