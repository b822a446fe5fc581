"""One forward of the head takes in what a step accepted and drafts: cheaper than two, and with the same entries."""

from __future__ import annotations

import mlx.core as mx
import pytest

from tests.conftest import CODE, PROSE
from worker.decode.generation import Request, read_ids, truncated
from worker.decode.prefill import prefill
from worker.measure.stages import StageClock
from worker.mtp.accept import num_accepted
from worker.mtp.commit import Capture
from worker.mtp.generate import Speculation, prefill_head, speculate
from worker.mtp.head import MtpHead
from worker.mtp.verify import verify


class _Noting(MtpHead):
    """A head that notes the entries added by each of its forwards, and every draft."""

    def __init__(self, head: MtpHead) -> None:
        super().__init__(head._module, head._target)
        self.forwards: list[int] = []
        self.drafts: list[int] = []

    def extend(self, hidden, next_tokens):
        self.forwards.append(next_tokens.shape[0])
        return super().extend(hidden, next_tokens)

    def feed_back(self, state, token):
        self.forwards.append(1)
        return super().feed_back(state, token)

    def logits(self, state):
        logits = super().logits(state)
        self.drafts += read_ids(mx.argmax(logits[0], axis=-1))
        return logits

    def entries(self) -> list[mx.array]:
        """The keys and values of every entry, self-fed ones included."""
        return [array[..., : self._cache.offset, :] for array in self.arrays()]


def _separately(target, head: MtpHead, request: Request, width: int) -> None:
    """The reference: the accepted entries by themselves after a step, the pending token's with the next step's drafts."""
    cache = target.new_cache()
    hidden = prefill(target, request.prompt_ids, cache, request.prefill_chunk_tokens)
    prefill_head(head, request, hidden)
    hidden, pending = hidden[:, -1:], mx.argmax(target.logits(hidden[:, -1:])[0], axis=-1)
    ids, stop = truncated(read_ids(pending), request)
    rewind = Capture(cache, StageClock())
    while stop is None:
        state = head.extend(hidden, pending)
        drafts = [mx.argmax(head.logits(state)[0], axis=-1)]
        for _ in range(width - 2):
            state = head.feed_back(state, drafts[-1])
            drafts.append(mx.argmax(head.logits(state)[0], axis=-1))
        tokens = mx.concatenate([pending, *drafts])
        verified, logits = verify(target, tokens, cache, "batched")
        choices = mx.argmax(logits[0], axis=-1)
        accepted = num_accepted(read_ids(tokens)[1:], read_ids(choices))
        ids, stop = truncated(ids + read_ids(choices)[: accepted + 1], request)
        if stop is None:
            rewind.commit(tokens, accepted + 1)
            if accepted:
                head.extend(verified[:, :accepted], choices[:accepted])
            hidden, pending = verified[:, accepted : accepted + 1], choices[accepted : accepted + 1]


def _request(tokenizer, text: str) -> Request:
    return Request(
        prompt_ids=tuple(tokenizer.encode(text)), max_tokens=32, stop_ids=frozenset(), prefill_chunk_tokens=64
    )


@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("text", [CODE, PROSE])
def test_the_entries_and_drafts_are_those_of_separate_forwards(make_target, make_head, tokenizer, width, text):
    target, request = make_target(64), _request(tokenizer, text)
    together, separate = _Noting(make_head(target)), _Noting(make_head(target))
    result = speculate(
        target, together, request, Speculation(verify_width=width, verify_mode="batched", rollback="capture")
    )
    _separately(target, separate, request, width)
    assert together.drafts == separate.drafts
    assert len(together.drafts) == (width - 1) * len(result.steps)
    assert together.num_true == separate.num_true
    for ours, theirs in zip(together.entries(), separate.entries(), strict=True):
        assert mx.array_equal(ours, theirs)
    assert sum(together.forwards) == sum(separate.forwards)
    num_accepting = sum(step.num_accepted > 0 for step in result.steps[:-1])
    assert num_accepting > 0
    assert len(separate.forwards) - len(together.forwards) == num_accepting


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_step_with_n_drafts_costs_n_forwards_of_the_head(make_target, make_head, tokenizer, width):
    target, request = make_target(64), _request(tokenizer, CODE)
    head = _Noting(make_head(target))
    steps = speculate(
        target, head, request, Speculation(verify_width=width, verify_mode="batched", rollback="capture")
    ).steps
    expected = []
    if width > 1:
        expected.append(len(request.prompt_ids) - 1)
        for accepted in [0, *(step.num_accepted for step in steps[:-1])]:
            expected += [accepted + 1] + [1] * (width - 2)
    assert head.forwards == expected
