"""A recorded forward computes what mlx-lm's layer computes and knows the state after each of its positions."""

from __future__ import annotations

import mlx.core as mx
import pytest

from worker.model.cache import RecurrentCache


def _linear_layers(target):
    return [(i, layer.linear_attn) for i, layer in enumerate(target.model.layers) if layer.is_linear]


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("warm", [False, True])
def test_a_recorded_forward_equals_mlx_lm(make_target, width: int, warm: bool):
    mx.random.seed(0)
    for _, layer in _linear_layers(make_target(64))[:3]:
        plain, recorded = RecurrentCache(), RecurrentCache()
        recorded.recording = True
        if warm:
            start = mx.random.normal((1, 6, 192))
            layer(start, cache=plain)
            recorded[0], recorded[1] = plain[0], plain[1]
        x = mx.random.normal((1, width, 192))
        expected, found = layer(x, cache=plain), layer(x, cache=recorded)
        assert mx.array_equal(expected, found)
        assert mx.array_equal(plain[0], recorded[0])
        assert mx.array_equal(plain[1], recorded[1])
        assert recorded.positions is not None
        assert len(recorded.positions) == width


def test_each_position_holds_the_state_of_the_prefix(make_target):
    mx.random.seed(1)
    for _, layer in _linear_layers(make_target(64))[:2]:
        x = mx.random.normal((1, 4, 192))
        recorded = RecurrentCache()
        recorded.recording = True
        layer(x, cache=recorded)
        for length in (1, 2, 3, 4):
            prefix = RecurrentCache()
            layer(x[:, :length], cache=prefix)
            assert recorded.positions is not None
            window, state = recorded.positions.after(length)
            assert mx.array_equal(window, prefix[0])
            assert mx.array_equal(state, prefix[1])
