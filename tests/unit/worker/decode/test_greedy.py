"""Streamed greedy decoding emits plain mlx-lm's tokens at every pool size, prefill chunk and read path."""

from __future__ import annotations

from functools import cache
from typing import cast

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from tests.conftest import CODE, PROSE
from worker.decode.generation import Request
from worker.decode.greedy import greedy

MAX_TOKENS = 40


@pytest.fixture(scope="module")
def plain_ids(plain_model, tokenizer):
    """Plain mlx-lm's greedy continuation of a text."""

    @cache
    def generate(text: str) -> tuple[int, ...]:
        prompt = mx.array(tokenizer.encode(text))
        return tuple(int(cast("int", token)) for token, _ in generate_step(prompt, plain_model, max_tokens=MAX_TOKENS))

    return generate


def _request(
    tokenizer, text: str, chunk: int = 64, stop: frozenset[int] = frozenset(), limit: int = MAX_TOKENS
) -> Request:
    return Request(
        prompt_ids=tuple(tokenizer.encode(text)), max_tokens=limit, stop_ids=stop, prefill_chunk_tokens=chunk
    )


@pytest.mark.parametrize("slots", [64, 63, 32, 16, 7, 4])
@pytest.mark.parametrize("text", [CODE, PROSE])
def test_same_tokens_as_plain_mlx_lm_at_every_pool_size(make_target, tokenizer, plain_ids, slots: int, text: str):
    target = make_target(slots)
    assert greedy(target, _request(tokenizer, text)).token_ids == plain_ids(text)
    for pool in target.pools:
        pool.check_integrity()


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_the_prefill_chunk_does_not_change_the_tokens(make_target, tokenizer, plain_ids, chunk: int):
    assert greedy(make_target(16), _request(tokenizer, CODE, chunk)).token_ids == plain_ids(CODE)


def test_the_staged_path_emits_the_same_tokens(make_target, tokenizer, plain_ids):
    target = make_target(16, read_path="staged")
    assert (target.read_path, target.staging_bytes) == ("staged", 0)
    assert greedy(target, _request(tokenizer, CODE)).token_ids == plain_ids(CODE)
    payload = target.pools[0].file.payload_bytes
    assert 0 < target.staging_bytes <= 16 * payload
    assert target.staging_bytes % payload == 0


def test_the_direct_path_stages_nothing(make_target, tokenizer, plain_ids):
    target = make_target(16)
    greedy(target, _request(tokenizer, CODE))
    assert (target.read_path, target.staging_bytes) == ("direct", 0)


def test_counters_count_each_layer_of_each_forward_once(make_target, tokenizer):
    resident, streaming = make_target(64), make_target(16)
    seen = []
    for target in (resident, streaming):
        target.telemetry.reset()
        greedy(target, _request(tokenizer, CODE))
        target.telemetry.settle()
        seen.append(target.telemetry.counters)
    assert seen[0]["decode"].num_forwards == seen[1]["decode"].num_forwards == MAX_TOKENS - 1
    assert seen[0]["decode"].num_layers_fast == seen[1]["decode"].num_layers_fallback == 8 * (MAX_TOKENS - 1)
    for phase in ("prefill", "decode"):
        assert seen[0][phase].num_routed == seen[1][phase].num_routed
        assert seen[0][phase].num_disk_loads == 0
        assert seen[1][phase].num_hits + seen[1][phase].num_disk_loads == seen[1][phase].num_routed
    assert seen[1]["decode"].num_routed == 4 * 8 * (MAX_TOKENS - 1)
    loads = sum(counters.num_disk_loads for counters in seen[1].values())
    assert streaming.reader.counters.completed >= loads > 0
    payload = streaming.pools[0].file.payload_bytes
    assert seen[1]["decode"].disk_bytes == seen[1]["decode"].num_disk_loads * payload


@pytest.mark.parametrize("slots", [64, 16])
def test_stopping_at_a_token_counts_no_forward_that_nobody_used(make_target, tokenizer, plain_ids, slots: int):
    ids = plain_ids(CODE)
    at = next(i for i in range(5, MAX_TOKENS) if ids[i] not in ids[:i])
    target = make_target(slots)
    target.telemetry.reset()
    generation = greedy(target, _request(tokenizer, CODE, stop=frozenset({ids[at]})))
    target.telemetry.settle()
    assert generation.token_ids == ids[: at + 1]
    assert generation.stop_reason == "eos"
    assert target.telemetry.counters["decode"].num_forwards == at


def test_the_trace_holds_every_routed_expert(make_target, tokenizer):
    target = make_target(16)
    target.telemetry.reset(recording=True)
    greedy(target, _request(tokenizer, CODE, limit=6))
    decode = [routing for routing in target.telemetry.routings if routing.phase == "decode"]
    assert len(decode) == 5 * 8
    assert {routing.experts.shape for routing in decode} == {(1, 4)}
    prefill = [routing for routing in target.telemetry.routings if routing.phase == "prefill" and routing.layer == 0]
    assert sum(routing.forward_width for routing in prefill) == len(tokenizer.encode(CODE))
