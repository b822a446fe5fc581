"""Committing a recorded position equals restoring a snapshot and replaying the prefix, whatever prefix is accepted."""

from __future__ import annotations

import mlx.core as mx
import pytest

from tests.conftest import CODE
from worker.decode.prefill import prefill
from worker.measure.stages import StageClock
from worker.mtp.commit import Capture, Replay
from worker.mtp.verify import verify


def _state(cache) -> list[mx.array]:
    from mlx_lm.models.cache import KVCache

    arrays = []
    for layer in cache.layers:
        if isinstance(layer, KVCache):
            arrays += list(layer.keys_and_values())
        else:
            arrays += [layer[0], layer[1]]
    return arrays


@pytest.mark.parametrize("mode", ["batched", "stepwise"])
@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_capture_leaves_the_state_that_replay_leaves(make_target, tokenizer, mode, accepted: int):
    target = make_target(32)
    prompt = tuple(tokenizer.encode(CODE))
    tokens = mx.array([100, 7, 2000, 31])
    states = []
    for way in (Capture, Replay):
        cache = target.new_cache()
        prefill(target, prompt, cache, 64)
        rewind = Capture(cache, StageClock()) if way is Capture else Replay(target, cache, StageClock())
        rewind.before()
        verify(target, tokens, cache, mode)
        committed = rewind.commit(tokens, accepted)
        assert cache.num_tokens == len(prompt) + accepted
        assert committed.num_direct_commits == (way is Capture or accepted == 4)
        assert committed.num_replayed_tokens == (0 if way is Capture or accepted == 4 else accepted)
        states.append(_state(cache))
    for captured, replayed in zip(*states, strict=True):
        assert mx.array_equal(captured, replayed)


def test_a_snapshot_can_be_restored_twice(make_target, tokenizer):
    target = make_target(32)
    cache = target.new_cache()
    prefill(target, tuple(tokenizer.encode(CODE)), cache, 64)
    before = [mx.array(array) for array in _state(cache)]
    snapshot = cache.snapshot()
    for tokens in ([100, 7], [2000, 31, 5]):
        mx.eval(target.forward(mx.array(tokens), cache, "verify"), cache.arrays())
        cache.restore(snapshot)
        for expected, found in zip(before, _state(cache), strict=True):
            assert mx.array_equal(expected, found)
