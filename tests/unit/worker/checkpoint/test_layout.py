"""The pool's floor, in numbers."""

from __future__ import annotations

import pytest

from worker.checkpoint.layout import check_slots, pool_floor
from worker.contract.errors import TaskError


def test_the_floor_is_every_expert_a_verify_forward_may_route_to():
    assert pool_floor(verify_width=3, experts_per_token=10) == 30
    check_slots(30, verify_width=3, experts_per_token=10, num_experts=512)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (29, r"29, below the floor of 30 \(verify_width 3 x 10 experts per token\); set slots_per_layer to 30 or more"),
        (513, r"513, the checkpoint has 512 experts per layer; set slots_per_layer to 512 or fewer"),
    ],
)
def test_a_pool_outside_its_bounds_is_refused_with_the_number(slots: int, message: str):
    with pytest.raises(TaskError, match=message):
        check_slots(slots, verify_width=3, experts_per_token=10, num_experts=512)


def test_a_small_model_needs_no_more_slots_than_it_has_experts():
    check_slots(8, verify_width=5, experts_per_token=4, num_experts=8)
