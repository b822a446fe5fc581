"""The predicted speedup against numbers worked out by hand."""

from __future__ import annotations

import pytest

from worker.mtp.generate import Step
from worker.mtp.predict import Costs, predicted_speedup

COSTS = Costs(verify_s=(0.010, 0.012, 0.015), head_sync_s=0.003, draft_s=0.002)


def _step(num_drafted: int, num_emitted: int, num_withheld: int = 0) -> Step:
    return Step(
        num_drafted=num_drafted,
        num_withheld=num_withheld,
        is_first_right=None,
        num_accepted=num_emitted - 1,
        num_emitted=num_emitted,
        num_direct_commits=1,
        num_replayed_tokens=0,
        at_s=0.0,
    )


def test_a_step_pays_for_its_forward_the_sync_and_every_draft_after_the_first():
    assert COSTS.of_step(num_proposed=2, num_made=2) == pytest.approx(0.015 + 0.003 + 0.002)
    assert COSTS.of_step(num_proposed=1, num_made=1) == pytest.approx(0.012 + 0.003)


def test_a_withheld_draft_is_paid_for_and_not_verified():
    assert COSTS.of_step(num_proposed=1, num_made=2) == pytest.approx(0.012 + 0.003 + 0.002)
    assert COSTS.of_step(num_proposed=0, num_made=1) == pytest.approx(0.010 + 0.003)


def test_a_fixed_width_is_the_accept_length_times_one_token_over_a_step():
    # two tokens per step of 20 ms, one token in 10 ms
    assert predicted_speedup(COSTS, [_step(2, 3), _step(2, 1), _step(2, 2)]) == pytest.approx(2 * 0.010 / 0.020)


def test_steps_of_several_widths_count_with_their_own_costs():
    # 3 tokens for 20 ms, 1 for 13 ms (one draft made, none proposed), 2 for 17 ms (two made, one proposed)
    steps = [_step(2, 3), _step(0, 1, num_withheld=1), _step(1, 2, num_withheld=1)]
    assert predicted_speedup(COSTS, steps) == pytest.approx(6 * 0.010 / (0.020 + 0.013 + 0.017))


def test_without_drafts_nothing_is_gained_or_lost_and_without_steps_nothing_is_said():
    assert predicted_speedup(COSTS, [_step(0, 1), _step(0, 1)]) == pytest.approx(1.0)
    assert predicted_speedup(COSTS, []) is None
