"""Acceptance under greedy decoding: a draft counts as long as the target would have said the same."""

from __future__ import annotations

from collections.abc import Sequence


def num_accepted(drafts: Sequence[int], targets: Sequence[int]) -> int:
    """How many leading drafts equal the target's own choices.

    `targets[i]` is what the target emits after the pending token and the first i drafts, so it judges `drafts[i]`; the one
    after the last accepted draft is emitted too (the correction, or the bonus when all were right).
    """
    for index, draft in enumerate(drafts):
        if draft != targets[index]:
            return index
    return len(drafts)
