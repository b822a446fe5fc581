"""Groups of layers emit the tokens of layers one by one, whatever misses in between, and undo what was wrong."""

from __future__ import annotations

import gc

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import CODE
from worker.decode.generation import Request
from worker.decode.greedy import greedy
from worker.mtp.generate import Speculation, speculate

EAGER = {"group_limit": 99, "read_cost_s": 1.0}
"""Reads are said to cost so much that groups are made at any hit ratio."""


def _request(tokenizer, limit: int = 24) -> Request:
    return Request(
        prompt_ids=tuple(tokenizer.encode(CODE)), max_tokens=limit, stop_ids=frozenset(), prefill_chunk_tokens=64
    )


@pytest.fixture(scope="module")
def expected(demo, tokenizer):
    from worker.model.build import EngineSettings, build_target

    one_by_one = EngineSettings(slots_per_layer=64, eviction="lru", reader_threads=1, read_path="auto")
    target = build_target(demo.directory, demo.manifest, one_by_one)
    ids = greedy(target, _request(tokenizer)).token_ids
    target.close()
    return ids


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    slots=st.sampled_from([12, 24, 40, 56, 63]),
    limit=st.integers(1, 9),
    read_cost_s=st.sampled_from([0.0, 1e-4, 1e-3, 1.0]),
    width=st.integers(1, 3),
    rollback=st.sampled_from(["capture", "replay"]),
)
def test_any_grouping_emits_the_same_tokens(
    make_target, make_head, tokenizer, expected, slots, limit, read_cost_s, width, rollback
):
    target = make_target(slots, group_limit=limit, read_cost_s=read_cost_s)
    assert greedy(target, _request(tokenizer)).token_ids == expected
    speculation = Speculation(verify_width=width, verify_mode="batched", rollback=rollback)
    assert speculate(target, make_head(target), _request(tokenizer), speculation).generation.token_ids == expected
    for pool in target.pools:
        pool.check_integrity()


def test_a_miss_in_a_group_is_repaired_and_counted(make_target, tokenizer, expected):
    target = make_target(40, **EAGER)
    target.telemetry.reset()
    for _ in range(4):
        target.run.misses.of(1)[:] = 0.0
        assert greedy(target, _request(tokenizer)).token_ids == expected
    counters = target.telemetry.take()[0]["decode"]
    assert counters.num_repairs > 0
    assert counters.num_layers_fast > 0
    assert counters.num_layers_fast + counters.num_layers_fallback == 8 * counters.num_forwards
    assert counters.num_hits + counters.num_disk_loads == counters.num_routed == 4 * 8 * counters.num_forwards


def test_what_is_counted_does_not_depend_on_the_groups(make_target, tokenizer):
    seen = []
    for more in ({"group_limit": 1}, EAGER):
        target = make_target(24, **more)
        target.telemetry.reset(recording=True)
        greedy(target, _request(tokenizer))
        counters, routings = target.telemetry.take()
        trace = [
            (r.phase, r.layer, r.experts.tolist()) for r in sorted(routings, key=lambda r: (r.forward_index, r.layer))
        ]
        seen.append((counters["decode"].num_hits, counters["decode"].num_disk_loads, trace))
    assert seen[0] == seen[1]


def test_groups_are_made_when_nothing_misses_any_more(make_target, tokenizer):
    target = make_target(63, **EAGER)
    for _ in range(4):
        target.telemetry.reset()
        greedy(target, _request(tokenizer))
    counters = target.telemetry.take()[0]["decode"]
    assert counters.num_layers_fast > counters.num_layers_fallback


def test_without_the_repair_a_miss_would_change_the_result(make_target, tokenizer, monkeypatch):
    """The tests above can fail: a group whose misses nobody looks at computes something else."""
    target = make_target(16, **EAGER)
    for pool in target.pools:
        pool.admit(np.arange(12))
    monkeypatch.setattr(target.run, "_settle", lambda routed, ids: None)
    target.run.misses.of(1)[:] = 0.0
    tokens = mx.array(tokenizer.encode(CODE))
    blind, honest = target.new_cache(), target.new_cache()
    mx.eval(target.forward(tokens, blind, "prefill"), target.forward(tokens, honest, "prefill"))
    wrong = target.forward(mx.array([100]), blind, "decode")
    mx.eval(wrong)
    target.run.misses.of(1)[:] = 1.0
    right = make_target(64).forward(mx.array([100]), honest, "decode")
    assert not mx.array_equal(wrong, right)


def test_a_target_that_is_let_go_frees_its_slots_at_once(demo):
    from worker.model.build import EngineSettings, build_target

    settings = EngineSettings(slots_per_layer=64, eviction="lru", reader_threads=1, read_path="auto")
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    target = build_target(demo.directory, demo.manifest, settings)
    held = target.expert_pool_bytes
    assert mx.get_active_memory() - before > held
    target.close()
    del target
    assert mx.get_active_memory() - before < held // 10


def test_a_group_over_resident_and_streaming_layers_counts_each_layer_once(make_target, tokenizer, expected):
    target = make_target((64, 24, 64, 24, 64, 24, 64, 24), **EAGER)
    for recording in (False, True):
        target.telemetry.reset(recording=recording)
        for _ in range(3):
            target.run.misses.of(1)[:] = 0.0
            assert greedy(target, _request(tokenizer)).token_ids == expected
        counters, routings = target.telemetry.take()
        decode = counters["decode"]
        assert decode.num_repairs > 0
        assert decode.num_layers_fast + decode.num_layers_fallback == 8 * decode.num_forwards
        assert decode.num_routed == 4 * 8 * decode.num_forwards
        if recording:
            assert len([r for r in routings if r.phase == "decode"]) == 8 * decode.num_forwards


def test_layers_that_hold_everything_never_break_a_group(make_target):
    target = make_target((64, 24, 64, 24, 64, 24, 64, 24), **EAGER)
    assert target.run.misses.of(1).tolist() == [0.0, 1.0] * 4
