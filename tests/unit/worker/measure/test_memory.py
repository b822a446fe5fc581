"""The peak is told apart for prompt and generation, and limits are what they should be and are put back."""

from __future__ import annotations

import mlx.core as mx
import pytest

from worker.measure.memory import (
    MemoryLimits,
    PeakByPhase,
    cache_limit,
    recommended_working_set_bytes,
    wired_limit,
)

MIB = 2**20


def _take(num_bytes: int) -> mx.array:
    array = mx.zeros(num_bytes // 4)
    mx.eval(array)
    return array


@pytest.mark.parametrize(("prefill", "generation"), [(16 * MIB, 2 * MIB), (2 * MIB, 16 * MIB)])
def test_what_the_prompt_took_is_not_the_generation_s_peak(prefill, generation):
    mx.clear_cache()
    before = mx.get_active_memory()
    peaks = PeakByPhase()
    _take(prefill)
    peaks.generation_begins()
    _take(generation)
    found = peaks.read()
    assert prefill <= found.prefill_peak_bytes - before < prefill + MIB
    assert found.generation_peak_bytes is not None
    assert generation <= found.generation_peak_bytes - before < generation + MIB
    assert found.peak_bytes == max(found.prefill_peak_bytes, found.generation_peak_bytes)


def test_a_generation_that_never_began_has_no_peak():
    peaks = PeakByPhase()
    kept = _take(4 * MIB)
    found = peaks.read()
    assert found.generation_peak_bytes is None
    assert found.peak_bytes == found.prefill_peak_bytes >= kept.nbytes


def test_an_earlier_generation_s_peak_is_forgotten():
    before = mx.get_active_memory()
    _take(32 * MIB)
    peaks = PeakByPhase()
    _take(MIB)
    assert peaks.read().peak_bytes - before < 32 * MIB


def test_reading_the_peak_evaluates_nothing():
    mx.clear_cache()
    lazy = mx.zeros(8 * MIB) + 1
    active = mx.get_active_memory()
    peaks = PeakByPhase()
    peaks.generation_begins()
    assert peaks.read().active_bytes == active
    mx.eval(lazy)
    assert mx.get_active_memory() > active + 16 * MIB


@pytest.mark.parametrize(
    ("asked", "working", "expected"),
    [
        (None, 500 * MIB, 500 * MIB),
        (None, 3 * MIB, 64 * MIB),
        (0, 500 * MIB, 0),
        (MIB, 500 * MIB, MIB),
        (900 * MIB, 500 * MIB, 900 * MIB),
    ],
)
def test_the_cache_limit_is_what_is_asked_or_what_the_model_works_in(asked, working, expected):
    assert cache_limit(asked, working) == expected


@pytest.mark.parametrize(
    ("holds", "recommended", "expected"), [(10, 25, 10), (25, 25, 25), (40, 25, 25), (10, None, None)]
)
def test_the_wired_limit_is_what_the_run_holds_and_no_more_than_recommended(holds, recommended, expected):
    assert wired_limit(holds, recommended) == expected


def test_nothing_is_recommended_off_apple_s_gpus():
    assert (recommended_working_set_bytes() is None) == (
        not mx.metal.is_available() or mx.default_device() == mx.Device(mx.cpu)
    )


def test_limits_are_put_back_in_the_end_and_once():
    found = mx.set_cache_limit(5 * MIB)
    try:
        limits = MemoryLimits()
        limits.set_cache(7 * MIB)
        limits.set_wired(None)
        assert (limits.cache_bytes, limits.wired_bytes) == (7 * MIB, None)
        assert mx.set_cache_limit(7 * MIB) == 7 * MIB
        limits.restore()
        assert mx.set_cache_limit(6 * MIB) == 5 * MIB
        limits.restore()
        assert mx.set_cache_limit(6 * MIB) == 6 * MIB
    finally:
        mx.set_cache_limit(found)
