"""What speculation should bring, from what its parts cost: a pure function beside the measured speedup.

A step emits some tokens and pays for a verify forward, for feeding the head, and for the drafts after the first, which
that feeding already gives. Greedy decoding pays a forward of one token for each. Snapshots, commits and replays are left
out. Formula: METHODOLOGY, "Predicted speedup".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.mtp.generate import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the parts of a step cost on this machine. Units: seconds.

    `verify_s[i]`: a verify forward of i + 1 tokens and the target's choices. `head_sync_s`: the head takes in what a step
    accepted and makes the first draft. `draft_s`: every further draft.
    """

    verify_s: tuple[float, ...]
    head_sync_s: float
    draft_s: float

    def of_step(self, *, num_proposed: int, num_made: int) -> float:
        """One step that verifies `num_proposed` drafts, out of `num_made`."""
        drafting_s = self.head_sync_s + (num_made - 1) * self.draft_s if num_made else 0.0
        return self.verify_s[num_proposed] + drafting_s


def predicted_speedup(costs: Costs, steps: Sequence[Step]) -> float | None:
    """Tokens per second of these steps at these costs, over those of greedy decoding; None without steps."""
    if not steps:
        return None
    step_s = [
        costs.of_step(num_proposed=step.num_drafted, num_made=step.num_drafted + step.num_withheld) for step in steps
    ]
    return sum(step.num_emitted for step in steps) * costs.verify_s[0] / sum(step_s)
