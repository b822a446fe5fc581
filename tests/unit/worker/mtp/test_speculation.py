"""Speculation emits the greedy tokens at every width, mode, rollback, draft policy and pool size, and drafts better than
chance.
"""

from __future__ import annotations

from typing import cast

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import CODE, PROSE
from worker.decode.generation import Request
from worker.decode.greedy import greedy
from worker.measure.stages import BarrierClock
from worker.mtp.generate import Speculation, speculate
from worker.mtp.head import MtpHead, MtpModule

MAX_TOKENS = 32


def _request(tokenizer, text: str, limit: int = MAX_TOKENS, stop: frozenset[int] = frozenset()) -> Request:
    return Request(prompt_ids=tuple(tokenizer.encode(text)), max_tokens=limit, stop_ids=stop, prefill_chunk_tokens=64)


@pytest.fixture(scope="module")
def greedy_ids(demo, tokenizer):
    from worker.model.build import EngineSettings, build_target

    target = build_target(
        demo.directory,
        demo.manifest,
        EngineSettings(slots_per_layer=64, eviction="lru", reader_threads=1, read_path="auto"),
    )
    ids = {text: greedy(target, _request(tokenizer, text)).token_ids for text in (CODE, PROSE)}
    target.close()
    return ids


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.integers(1, 5),
    mode=st.sampled_from(["batched", "stepwise"]),
    rollback=st.sampled_from(["capture", "replay"]),
    policy=st.sampled_from(["fixed", "gated", "off"]),
    confidence=st.floats(0, 1),
    slots=st.sampled_from([64, 40, 20]),
    text=st.sampled_from([CODE, PROSE]),
    limit=st.integers(1, MAX_TOKENS),
)
def test_same_tokens_as_greedy(
    make_target, make_head, tokenizer, greedy_ids, width, mode, rollback, policy, confidence, slots, text, limit
):
    target = make_target(slots)
    result = speculate(
        target,
        make_head(target),
        _request(tokenizer, text, limit),
        Speculation(
            verify_width=width,
            verify_mode=mode,
            rollback=rollback,
            draft_policy=policy,
            draft_confidence=confidence,
        ),
    )
    assert result.generation.token_ids == greedy_ids[text][:limit]
    assert sum(step.num_emitted for step in result.steps) == limit - 1
    for step in result.steps:
        most = 0 if policy == "off" else width - 1
        assert step.num_drafted == most or (policy == "gated" and step.num_drafted < most)
        assert step.num_withheld == (step.num_drafted < most)
        assert (step.is_first_right is None) == (most == 0)
        assert step.num_drafted == 0 or step.is_first_right == (step.num_accepted > 0)
        assert 0 <= step.num_accepted <= step.num_drafted
        assert rollback == "replay" or step.num_replayed_tokens == 0
    assert [step.num_direct_commits + (step.num_replayed_tokens > 0) for step in result.steps[:-1]] == [1] * (
        len(result.steps) - 1
    )


@pytest.mark.parametrize("text", [CODE, PROSE])
def test_a_higher_confidence_proposes_less_and_keeps_the_tokens(make_target, make_head, tokenizer, greedy_ids, text):
    target = make_target(20)
    head, proposed = make_head(target), []
    for confidence in (0.0, 0.3, 0.6, 0.9, 1.0):
        speculation = Speculation(
            verify_width=4,
            verify_mode="batched",
            rollback="capture",
            draft_policy="gated",
            draft_confidence=confidence,
        )
        result = speculate(target, head, _request(tokenizer, text), speculation)
        assert result.generation.token_ids == greedy_ids[text]
        proposed.append(sum(step.num_drafted for step in result.steps) / len(result.steps))
    assert proposed == sorted(proposed, reverse=True)
    assert (proposed[0], proposed[-1]) == (3.0, 0.0)
    assert 0 < proposed[2] < 3


def test_the_pool_floor_is_enough(make_target, make_head, tokenizer, greedy_ids):
    for width in (1, 2, 5):
        target = make_target(4 * width)
        result = speculate(
            target,
            make_head(target),
            _request(tokenizer, CODE),
            Speculation(verify_width=width, verify_mode="batched", rollback="capture"),
        )
        assert result.generation.token_ids == greedy_ids[CODE]


def test_barriers_change_nothing_but_the_clock(make_target, make_head, tokenizer, greedy_ids):
    target, stages = make_target(20), BarrierClock()
    result = speculate(
        target,
        make_head(target),
        _request(tokenizer, CODE),
        Speculation(verify_width=3, verify_mode="batched", rollback="replay"),
        stages=stages,
    )
    assert result.generation.token_ids == greedy_ids[CODE]
    assert all(seconds > 0 for seconds in stages.seconds.values())
    assert sum(stages.seconds.values()) <= result.generation.decode_s


def test_speculation_stops_at_the_same_stop_token(make_target, make_head, tokenizer, greedy_ids):
    ids = greedy_ids[CODE]
    at = next(i for i in range(6, MAX_TOKENS) if ids[i] not in ids[:i])
    target = make_target(64)
    result = speculate(
        target,
        make_head(target),
        _request(tokenizer, CODE, stop=frozenset({ids[at]})),
        Speculation(verify_width=4, verify_mode="batched", rollback="capture"),
    )
    assert result.generation.token_ids == ids[: at + 1]
    assert result.generation.stop_reason == "eos"


def _first_acceptance(target, head, tokenizer) -> float:
    steps = []
    for text in (CODE, PROSE):
        speculation = Speculation(verify_width=2, verify_mode="batched", rollback="capture")
        steps += speculate(target, head, _request(tokenizer, text, 64), speculation).steps
    return sum(step.num_accepted for step in steps) / len(steps)


class _Swapped(MtpModule):
    """Concatenates the halves the wrong way round."""

    def __call__(self, hidden, embedded, cache):
        joined = mx.concatenate([self.pre_fc_norm_hidden(hidden), self.pre_fc_norm_embedding(embedded)], axis=-1)
        x = self.fc(joined)
        return self.norm(self.layer(x, mask=cast("mx.array | None", "causal" if x.shape[1] > 1 else None), cache=cache))


def test_a_wrongly_attached_head_keeps_the_tokens_and_loses_the_acceptance(
    make_target, make_head, tokenizer, greedy_ids
):
    target = make_target(64)
    right = make_head(target)
    assert _first_acceptance(target, right, tokenizer) > 0.5
    right._module.__class__ = _Swapped
    wrong = MtpHead(right._module, target)
    assert _first_acceptance(target, wrong, tokenizer) < 0.05
    result = speculate(
        target,
        wrong,
        _request(tokenizer, CODE),
        Speculation(verify_width=3, verify_mode="batched", rollback="capture"),
    )
    assert result.generation.token_ids == greedy_ids[CODE]


def test_the_head_is_fed_the_prompt_and_the_true_states(make_target, make_head, tokenizer, monkeypatch):
    """When the last step drafts, the head holds one true entry per position up to the pending token."""
    target = make_target(64)
    head = make_head(target)
    request = _request(tokenizer, CODE, 20)
    result = speculate(target, head, request, Speculation(verify_width=4, verify_mode="batched", rollback="capture"))
    known = 1 + sum(step.num_accepted + 1 for step in result.steps[:-1])
    assert head.num_true == len(request.prompt_ids) - 1 + known
