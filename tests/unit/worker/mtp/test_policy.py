"""The draft policy by hand, and the drafts it lets through."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tests.conftest import CODE
from worker.decode.generation import Request, read_ids
from worker.decode.prefill import prefill
from worker.mtp.draft import draft
from worker.mtp.generate import Speculation, prefill_head, speculate
from worker.mtp.policy import Gate, first_gate, most_drafts


def _num_passed(confidence: float, probabilities: list[float]) -> int:
    gate = Gate(confidence=confidence)
    for index, probability in enumerate(probabilities):
        gate = gate.after(probability)
        if not gate.is_open:
            return index
    return len(probabilities)


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(0.0, 4), (0.18, 4), (0.181, 3), (0.36, 3), (0.361, 2), (0.72, 2), (0.721, 1), (0.9, 1), (0.901, 0), (1.0, 0)],
)
def test_drafts_pass_while_the_product_reaches_the_confidence(confidence, expected):
    # the products: 0.9, 0.72, 0.36, 0.18
    assert _num_passed(confidence, [0.9, 0.8, 0.5, 0.5]) == expected


def test_a_certain_head_passes_the_highest_confidence():
    assert _num_passed(1.0, [1.0, 1.0, 0.99]) == 2


@pytest.mark.parametrize(
    ("policy", "width", "most"), [("fixed", 1, 0), ("fixed", 4, 3), ("gated", 4, 3), ("off", 4, 0), ("off", 1, 0)]
)
def test_a_policy_says_how_many_drafts_and_whether_to_look(policy, width, most):
    assert most_drafts(policy, width) == most
    assert first_gate(policy, 0.25) == (Gate(confidence=0.25) if policy == "gated" else None)


def test_the_gate_keeps_the_leading_drafts_of_an_open_one(make_target, make_head, tokenizer):
    target = make_target(64)
    head = make_head(target)
    request = Request(
        prompt_ids=tuple(tokenizer.encode(CODE)), max_tokens=2, stop_ids=frozenset(), prefill_chunk_tokens=64
    )
    hidden = prefill(target, request.prompt_ids, target.new_cache(), 64)
    pending = mx.argmax(target.logits(hidden[:, -1:])[0], axis=-1)

    def state() -> mx.array:
        prefill_head(head, request, hidden)
        return head.extend(hidden[:, -1:], pending)

    every = [read_ids(token)[0] for token in draft(head, state(), 4).made]
    products, product, following = [], 1.0, state()
    for token in every:
        logits = np.array(head.logits(following)[0, 0]).astype(np.float64)
        product /= float(np.exp(logits - logits.max()).sum())
        products.append(product)
        following = head.feed_back(following, mx.array([token]))
    assert products == sorted(products, reverse=True)
    for passing, product in enumerate(products):
        found = draft(head, state(), 4, Gate(confidence=product * 1.001))
        assert [read_ids(token)[0] for token in found.proposed] == every[:passing]
        assert found.withheld is not None
        assert read_ids(found.withheld) == [every[passing]]
    assert len(draft(head, state(), 4, Gate(confidence=products[-1] * 0.999)).proposed) == 4


@pytest.mark.parametrize(("policy", "confidence"), [("off", 0.3), ("gated", 1.0)])
def test_a_step_without_drafts_verifies_one_token(make_target, make_head, tokenizer, policy, confidence):
    target = make_target(20)
    request = Request(
        prompt_ids=tuple(tokenizer.encode(CODE)), max_tokens=12, stop_ids=frozenset(), prefill_chunk_tokens=64
    )
    target.telemetry.reset(recording=True)
    speculation = Speculation(
        verify_width=4, verify_mode="batched", rollback="capture", draft_policy=policy, draft_confidence=confidence
    )
    steps = speculate(target, make_head(target), request, speculation).steps
    _, routings = target.telemetry.take()
    assert {routing.forward_width for routing in routings if routing.phase == "verify"} == {1}
    assert [step.num_drafted for step in steps] == [0] * 11
    assert {step.num_withheld for step in steps} == {1 if policy == "gated" else 0}
