"""Drafting: the head predicts one token after another, each from its own previous state."""

from __future__ import annotations

import mlx.core as mx

from worker.mtp.head import MtpHead


def draft(head: MtpHead, hidden: mx.array, pending: mx.array, num_draft_tokens: int) -> mx.array:
    """Propose the tokens that follow the pending one.

    Shapes: hidden [1, 1, hidden] of the position before the pending token, pending [1] -> [num_draft_tokens].
    Mutates: the head's cache: one true entry, then one self-fed entry per further draft. Nothing is read on the host.
    """
    state = head.extend(hidden, pending)
    token = mx.argmax(head.logits(state)[0, -1:], axis=-1)
    drafts = [token]
    for _ in range(num_draft_tokens - 1):
        state = head.feed_back(state, token)
        token = mx.argmax(head.logits(state)[0, -1:], axis=-1)
        drafts.append(token)
    return mx.concatenate(drafts)
