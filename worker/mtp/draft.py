"""Drafting: the head predicts one token after another, each from its own previous state."""

from __future__ import annotations

import mlx.core as mx

from worker.mtp.head import MtpHead


def draft(head: MtpHead, state: mx.array, num_draft_tokens: int) -> tuple[mx.array, ...]:
    """Propose the tokens that follow the pending one.

    Shapes: state [1, 1, hidden], the head's G of its newest true entry -> `num_draft_tokens` times [1].
    Mutates: the head's cache: one self-fed entry per draft but the first. Nothing is read on the host.
    """
    drafts = [best(head, state)]
    for _ in range(num_draft_tokens - 1):
        state = head.feed_back(state, drafts[-1])
        drafts.append(best(head, state))
    return tuple(drafts)


def best(head: MtpHead, state: mx.array) -> mx.array:
    """The token that the head thinks most probable. Shapes: state [1, 1, hidden] -> [1]."""
    return mx.argmax(head.logits(state)[0, -1:], axis=-1)
