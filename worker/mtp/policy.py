"""How many drafts a step gets: a pure policy over the probabilities that the head gives its own drafts.

    fixed   as many as the verify forward has room for
    gated   up to there, while the head is sure: drafting stops at the first draft with which the product of the
            probabilities falls below a confidence; that draft is not proposed, and the first may be such a one
    off     none

Without drafts the verify forward scores the pending token alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from worker.contract.task import DraftPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The chance that every draft so far is right, by the head's own account, and the least that it may be."""

    confidence: float
    product: float = 1.0

    def after(self, probability: float) -> Gate:
        """The gate once another draft of this probability is made."""
        return replace(self, product=self.product * probability)

    @property
    def is_open(self) -> bool:
        return self.product >= self.confidence


def most_drafts(policy: DraftPolicy, verify_width: int) -> int:
    """The most drafts of a step: the verify forward scores the pending token too."""
    return 0 if policy == "off" else verify_width - 1


def first_gate(policy: DraftPolicy, confidence: float) -> Gate | None:
    """The gate that a step begins with; None where drafts are made whatever the head thinks of them."""
    return Gate(confidence=confidence) if policy == "gated" else None
