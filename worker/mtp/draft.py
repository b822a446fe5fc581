"""Drafting: the head predicts one token after another, each from its own previous state, while the policy lets it."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from worker.mtp.head import MtpHead
from worker.mtp.policy import Gate


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts of one step, in order. Shapes: each [1].

    `withheld` was made, found too unsure, and is not proposed.
    """

    proposed: tuple[mx.array, ...] = ()
    withheld: mx.array | None = None

    @property
    def made(self) -> tuple[mx.array, ...]:
        return self.proposed if self.withheld is None else (*self.proposed, self.withheld)


def draft(head: MtpHead, state: mx.array, num_draft_tokens: int, gate: Gate | None = None) -> Drafts:
    """Propose the tokens that follow the pending one, `num_draft_tokens` at most.

    Shapes: state [1, 1, hidden], the head's G of its newest true entry. Mutates: the head's cache: one self-fed entry per
    draft but the first. With a gate, one probability is read on the host after each draft; without, nothing is read.
    """
    proposed: list[mx.array] = []
    for index in range(num_draft_tokens):
        if index:
            state = head.feed_back(state, proposed[-1])
        logits = head.logits(state)[0, -1:]
        token = mx.argmax(logits, axis=-1)
        if gate is not None:
            gate = gate.after(_top_probability(logits, token))
            if not gate.is_open:
                return Drafts(tuple(proposed), withheld=token)
        proposed.append(token)
    return Drafts(tuple(proposed))


def _top_probability(logits: mx.array, token: mx.array) -> float:
    """The softmax of the best logit; the token is evaluated with it. Shapes: logits [1, vocabulary], token [1]."""
    wide = logits.astype(mx.float32)
    probability = mx.exp(mx.max(wide) - mx.logsumexp(wide))
    mx.eval(probability, token)
    return float(probability)
