"""A gated-delta layer that can tell its state after every position of a forward.

Outside a recorded forward it is mlx-lm's layer, unchanged. Inside one, the projections and the convolution run over all
positions at once, as there, and only the recurrence, whose kernel returns its last state alone, runs position by position.
The reference is mlx-lm's layer: same outputs, same last state (tests/unit/worker/model/test_recurrent.py).
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
from mlx import nn
from mlx_lm.models.gated_delta import compute_g, gated_delta_kernel, gated_delta_ops, normalize_qk
from mlx_lm.models.qwen3_next import Qwen3NextGatedDeltaNet

from worker.measure.backend import on_metal
from worker.model.cache import Positions, RecurrentCache


class PositionalGatedDeltaNet(Qwen3NextGatedDeltaNet):
    """mlx-lm's gated-delta layer; records a state per position when its cache asks for it."""

    def __call__(self, inputs: mx.array, mask: mx.array | None = None, cache: RecurrentCache | None = None) -> mx.array:
        """Shapes: inputs [1, width, hidden] -> [1, width, hidden]. Mutates: the cache."""
        if cache is None or not cache.recording:
            return super().__call__(inputs, mask, cache)
        q, k, v, z, b, a = self.fix_query_key_value_ordering(self.in_proj_qkvz(inputs), self.in_proj_ba(inputs))
        conv_out, padded = self._convolve(inputs, q, k, v, cache)
        q, k, v = self._split_heads(conv_out)
        gate, beta = compute_g(self.A_log, a, self.dt_bias), mx.sigmoid(b)
        outputs, states = [], []
        state = cache[1]
        if state is None:
            state = mx.zeros((1, self.num_v_heads, self.head_v_dim, self.head_k_dim), dtype=mx.float32)
        step = self._recurrence(q)
        if step is gated_delta_ops:
            # Heads are repeated here once, where the reference repeats them at each call.
            q, k = (mx.repeat(x, self.num_v_heads // self.num_k_heads, -2) for x in (q, k))
        for t in range(inputs.shape[1]):
            at = slice(t, t + 1)
            output, state = step(q[:, at], k[:, at], v[:, at], gate[:, at], beta[:, at], state)
            outputs.append(output)
            states.append(state)
        cache.record(Positions((padded,), tuple(states), self.conv_kernel_size - 1))
        normed = self.norm(mx.concatenate(outputs, axis=1), z)
        return self.out_proj(normed.reshape(*inputs.shape[:2], -1))

    def _convolve(
        self, inputs: mx.array, q: mx.array, k: mx.array, v: mx.array, cache: RecurrentCache
    ) -> tuple[mx.array, mx.array]:
        """The convolution's output and its input, padded with the window that the cache held."""
        batch, width, _ = inputs.shape
        reach = self.conv_kernel_size - 1
        window = cache[0]
        if window is None:
            window = mx.zeros((batch, reach, self.conv_dim), dtype=inputs.dtype)
        flat = [part.reshape(batch, width, -1) for part in (q, k, v)]
        padded = mx.concatenate([window, mx.concatenate(flat, axis=-1)], axis=1)
        return nn.silu(self.conv1d(padded)), padded

    def _recurrence(self, q: mx.array) -> Callable[..., tuple[mx.array, mx.array]]:
        """The implementation that mlx-lm chooses for these heads on this backend."""
        return gated_delta_kernel if on_metal() and q.shape[-1] % 32 == 0 else gated_delta_ops

    def _split_heads(self, conv_out: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        batch, width, _ = conv_out.shape
        q, k, v = mx.split(conv_out, [self.key_dim, 2 * self.key_dim], -1)
        q = q.reshape(batch, width, self.num_k_heads, self.head_k_dim)
        k = k.reshape(batch, width, self.num_k_heads, self.head_k_dim)
        v = v.reshape(batch, width, self.num_v_heads, self.head_v_dim)
        q, k = normalize_qk(q, k, inv_scale=self.head_k_dim**-0.5, eps=1e-6)
        return q, k, v
