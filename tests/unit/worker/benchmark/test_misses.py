"""The slots that give a wanted hit ratio are chosen by what pools of every size will miss, told from one resident run."""

from __future__ import annotations

import numpy as np
import pytest

from worker.benchmark.engine import engine_arm, interleave, zipf_ids
from worker.benchmark.misses import misses_by_slots, slots_for

PROMPT = zipf_ids(2048, 4, seed=0)
IDS = [zipf_ids(2048, 10, seed=1 + index) for index in range(2)]


@pytest.mark.parametrize("settled", [True, False])
def test_a_pool_of_any_size_misses_as_often_as_was_told(make_target, settled: bool):
    told = misses_by_slots(make_target(64), PROMPT, IDS, settled=settled)
    for slots in (24, 40, 56):
        (summary,) = interleave([engine_arm("", make_target(slots))], PROMPT, IDS, settled=settled)
        assert summary.counters is not None
        missed = summary.counters.num_disk_loads / summary.num_tokens
        # Exact, because the prompt is short enough to fit into each of these pools at once.
        assert missed == pytest.approx(told[slots])


def test_the_fewest_slots_that_hit_often_enough():
    misses = np.array([99.0, 10.0, 5.0, 2.0, 1.0, 0.0])
    assert slots_for(misses, 10, 0.5) == 2
    assert slots_for(misses, 10, 0.85) == 4
    assert slots_for(misses, 10, 1.0) == 5
