"""Whatever policy evicts and however the slots are split over the layers, both paths emit the same tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import CODE, PROSE
from worker.contract.task import ReadPath
from worker.decode.generation import Request
from worker.decode.greedy import greedy
from worker.experts.eviction import POLICIES
from worker.model.build import EngineSettings, build_target
from worker.mtp.generate import Speculation, speculate
from worker.mtp.head import load_head

MAX_TOKENS = 16


def _request(tokenizer, text: str) -> Request:
    return Request(
        prompt_ids=tuple(tokenizer.encode(text)), max_tokens=MAX_TOKENS, stop_ids=frozenset(), prefill_chunk_tokens=64
    )


def _target(demo, slots: int | tuple[int, ...], eviction: str = "lru", read_path: ReadPath = "auto", **more):
    chosen = EngineSettings(slots_per_layer=slots, eviction=eviction, reader_threads=2, read_path=read_path, **more)
    return build_target(demo.directory, demo.manifest, chosen)


@pytest.fixture(scope="module")
def resident_ids(demo, tokenizer):
    target = _target(demo, 64)
    ids = {text: greedy(target, _request(tokenizer, text)).token_ids for text in (CODE, PROSE)}
    target.close()
    return ids


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    eviction=st.sampled_from(sorted(POLICIES)),
    width=st.integers(0, 4),
    extra=st.lists(st.sampled_from([0, 1, 7, 30, 64]), min_size=8, max_size=8),
    num_pinned=st.sampled_from([0, 0, 5]),
    read_path=st.sampled_from(["auto", "staged"]),
    text=st.sampled_from([CODE, PROSE]),
    prefetch=st.booleans(),
    reading=st.fixed_dictionaries(
        {
            "prefetch_ranks": st.integers(1, 6),
            "queue_depth": st.sampled_from([2, 5, 16]),
            "bypass_page_cache": st.booleans(),
            "keep_warm": st.booleans(),
            "overlap": st.booleans(),
        }
    ),
)
@example(
    eviction="s3-fifo",
    width=4,
    extra=[0, 0, 0, 0, 0, 0, 7, 0],
    num_pinned=0,
    read_path="auto",
    text=CODE,
    prefetch=False,
    reading={},
)
def test_any_policy_split_and_way_of_reading(
    demo, tokenizer, resident_ids, eviction, width, extra, num_pinned, read_path, text, prefetch, reading
):
    """Width 0 stands for the greedy path. Each layer has its floor, beside what is pinned, and some slots more."""
    floor = 4 * max(width, 1) + num_pinned
    slots = tuple(min(64, floor + more) for more in extra)
    target = _target(demo, slots, eviction, read_path, prefetch=prefetch, **reading)
    assert tuple(pool.num_slots for pool in target.pools) == slots
    if num_pinned:
        for pool in target.pools:
            pool.pin(np.arange(pool.layer, pool.layer + num_pinned))
    if width:
        head = load_head(demo.directory, demo.manifest.mtp, target)
        speculation = Speculation(verify_width=width, verify_mode="batched", rollback="capture")
        ids = speculate(target, head, _request(tokenizer, text), speculation).generation.token_ids
    else:
        ids = greedy(target, _request(tokenizer, text)).token_ids
    for pool in target.pools:
        pool.check_integrity()
    target.close()
    assert ids == resident_ids[text]


def test_a_layer_that_holds_every_expert_is_resident_beside_layers_that_stream(demo, tokenizer, resident_ids):
    target = _target(demo, (64, 12, 64, 12, 12, 12, 12, 64))
    assert [pool.holds_all for pool in target.pools] == [True, False, True, False, False, False, False, True]
    assert not target.is_resident
    target.telemetry.reset(recording=True)
    assert greedy(target, _request(tokenizer, CODE)).token_ids == resident_ids[CODE]
    counters, routings = target.telemetry.take()
    decode = counters["decode"]
    assert decode.num_layers_fast == 3 * decode.num_forwards
    assert decode.num_layers_fallback == 5 * decode.num_forwards
    assert decode.num_hits + decode.num_disk_loads == decode.num_routed == 4 * 8 * decode.num_forwards
    assert all(r.num_hits == r.num_union for r in routings if r.layer in (0, 2, 7))
    target.close()
