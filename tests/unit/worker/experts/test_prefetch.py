"""What is read ahead and why a miss was not prevented: each cause by hand, and all of them adding up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.contract.errors import CheckpointError
from worker.experts.counters import PhaseCounters
from worker.experts.pool import ABSENT, LayerPool
from worker.experts.prefetch import MIN_USEFUL_RATIO, RETRY_FORWARDS, Prefetcher
from worker.experts.staging import StagingBuffers

from .conftest import LAYOUT, payload


@pytest.fixture
def ahead(make_pool: Callable[..., LayerPool]) -> Callable[..., tuple[LayerPool, Prefetcher]]:
    """A pool of eight slots with a prefetcher that has `buffers` staging buffers, in a decode forward."""

    def make(*, buffers: int = 8, ranks: int = 4, way: str = "direct") -> tuple[LayerPool, Prefetcher]:
        pool = make_pool(8, way=way, threads=2)
        pool.prefetcher = Prefetcher(
            pool._reader,
            StagingBuffers(buffers, LAYOUT.payload_bytes),
            pool.telemetry,
            ranks=ranks,
            experts_per_token=4,
        )
        with pool.telemetry.forward("decode"):
            pass
        return pool, pool.prefetcher

    return make


def _predict(pool: LayerPool, *experts: int) -> None:
    assert pool.prefetcher is not None
    pool.prefetcher.submit(pool.layer, pool.file, np.array([experts]), pool.slot_of == ABSENT)


def _arrive(prefetcher: Prefetcher) -> None:
    for staged in prefetcher._staged.values():
        prefetcher.finish(staged)


def _route(pool: LayerPool, *experts: int) -> PhaseCounters:
    """One forward routes to these experts; returns the counters so far."""
    chosen = np.array(sorted(experts))
    assert pool.prefetcher is not None
    pool.prefetcher.compare(pool.layer, chosen[None], chosen)
    admitted = pool.admit(chosen)
    pool.telemetry.routed(
        pool.layer,
        chosen[None],
        num_union=chosen.size,
        num_hits=admitted.num_hits,
        num_late=admitted.num_late,
        payload_bytes=LAYOUT.payload_bytes,
    )
    for slot, expert in enumerate(pool.expert_at):
        assert expert == ABSENT or pool.slots.payload(slot) == payload(int(expert))
    pool.check_integrity()
    return pool.telemetry.current


@pytest.mark.parametrize("way", ["direct", "staged"])
def test_what_arrives_in_time_is_a_hit_and_not_read_again(ahead, way: str):
    pool, prefetcher = ahead(way=way)
    _predict(pool, 5, 6, 7, 8)
    _arrive(prefetcher)
    before = pool._reader.take().bytes
    counters = _route(pool, 5, 6, 9, 10)
    assert (before, pool._reader.take().bytes) == (4 * LAYOUT.payload_bytes, 2 * LAYOUT.payload_bytes)
    assert (counters.num_hits, counters.num_disk_loads, counters.num_prefetch_hits) == (2, 2, 2)
    assert (counters.num_predicted, counters.num_prefetch_submitted) == (4, 4)
    assert counters.num_misses_unpredicted == 2
    prefetcher.clear()
    assert (counters.num_prefetch_loads, counters.num_prefetch_evicted) == (4, 2)
    foresight = prefetcher.take().layers[0, 1]
    assert foresight.right_by_rank.tolist() == [1, 1, 0, 0]
    assert (foresight.num_predictions, foresight.num_routed, foresight.num_routed_predicted) == (1, 4, 2)


def test_a_miss_whose_read_is_on_its_way_is_waited_for_and_called_late(ahead, monkeypatch: pytest.MonkeyPatch):
    pool, _ = ahead()
    monkeypatch.setattr(pool._reader, "_max_ahead_running", 0)
    _predict(pool, 5, 6, 7, 8)
    counters = _route(pool, 5, 9, 10, 11)
    assert (counters.num_hits, counters.num_disk_loads, counters.num_misses_predicted_late) == (0, 3, 1)
    assert counters.num_prefetch_cancelled == 3
    assert counters.num_routed == 4


def test_what_is_resident_or_beyond_the_ranks_is_not_read_ahead(ahead):
    pool, prefetcher = ahead(ranks=2)
    _route(pool, 1, 2, 3, 4)
    _predict(pool, 1, 5, 6, 7)
    assert [key[1] for key in prefetcher._staged] == [5]


def test_a_record_given_up_for_another_is_an_eviction_and_the_miss_says_so(ahead):
    pool, prefetcher = ahead(buffers=2)
    _predict(pool, 5, 6, 7, 8)
    counters = pool.telemetry.current
    assert counters.num_prefetch_dropped >= 1
    _arrive(prefetcher)
    prefetcher.submit(1, pool.file, np.array([[9, 10, 11, 12]]), np.ones(32, dtype=np.bool_))
    counters = _route(pool, 5, 6, 7, 8)
    assert counters.num_prefetch_evicted >= 1
    assert counters.num_misses_predicted_evicted >= 1
    assert counters.num_misses_predicted_dropped >= 1
    causes = counters.num_misses_predicted_evicted + counters.num_misses_predicted_dropped
    assert causes + counters.num_misses_predicted_late + counters.num_prefetch_hits == 4
    assert counters.num_misses_unpredicted == 0


def test_a_layer_whose_predictions_are_wrong_stops_and_tries_again(ahead):
    pool, prefetcher = ahead()
    asked = []
    for forward in range(200):
        wanted = prefetcher.wants(0)
        asked.append(wanted)
        if wanted:
            _predict(pool, *(4 + (forward + i) % 12 for i in range(4)))
        _route(pool, 20, 21, 22, 23)
    first_refusal = asked.index(False)
    assert 0.9**first_refusal < MIN_USEFUL_RATIO <= 0.9 ** (first_refusal - 1)
    assert sum(asked[first_refusal:]) == (200 - first_refusal) // RETRY_FORWARDS


def test_nothing_is_predicted_for_a_prompt(ahead):
    pool, prefetcher = ahead()
    with pool.telemetry.forward("prefill"):
        assert not prefetcher.wants(0)


def test_an_error_met_ahead_of_need_is_raised_when_the_expert_is_needed(ahead, expert_path: Path):
    pool, prefetcher = ahead()
    os.truncate(expert_path, 30 * LAYOUT.record_bytes)
    _predict(pool, 31, 5, 6, 7)
    _arrive(prefetcher)
    _route(pool, 5, 6, 7, 8)
    with pytest.raises(CheckpointError, match="layer 0 expert 31 has 0 of 176 bytes"):
        _route(pool, 31)
    assert pool.slot_of[31] == ABSENT
    pool.check_integrity()
    prefetcher.clear()
    assert prefetcher._staging.num_held == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    forwards=st.lists(
        st.tuples(
            st.permutations(range(12)).map(lambda p: p[:4]),
            st.permutations(range(12)).map(lambda p: p[:4]),
            st.booleans(),
        ),
        max_size=20,
    ),
    buffers=st.integers(1, 6),
    way=st.sampled_from(["direct", "staged"]),
)
def test_counts_add_up_and_every_slot_is_right_whatever_was_predicted(ahead, forwards, buffers, way):
    pool, prefetcher = ahead(buffers=buffers, way=way)
    for predicted, routed, arrives in forwards:
        _predict(pool, *predicted)
        if arrives:
            _arrive(prefetcher)
        _route(pool, *routed)
    prefetcher.clear()
    c = pool.telemetry.current
    assert c.num_hits + c.num_disk_loads + c.num_misses_predicted_late == c.num_routed == 4 * len(forwards)
    causes = c.num_misses_predicted_late + c.num_misses_predicted_evicted
    causes += c.num_misses_predicted_dropped + c.num_misses_unpredicted
    assert causes == c.num_routed - c.num_hits
    ended = c.num_prefetch_hits + c.num_misses_predicted_late + c.num_prefetch_evicted + c.num_prefetch_cancelled
    assert ended == c.num_prefetch_submitted
    assert c.num_prefetch_loads == ended - c.num_prefetch_cancelled
    assert prefetcher._staging.num_held == 0
    assert prefetcher._staging.nbytes <= buffers * LAYOUT.payload_bytes
