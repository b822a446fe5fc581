from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap

from fleet.compare import stats
from fleet.compare.stats import NOT_MEASURED, Estimate, estimate, estimate_ratio

RATES = st.floats(min_value=0.1, max_value=1e4)
GROUPS = st.lists(st.lists(RATES, max_size=5), min_size=1, max_size=4)


def test_nothing_measured_is_null_and_never_zero() -> None:
    assert estimate([]) == estimate([[], []]) == NOT_MEASURED
    assert Estimate(median=None, low=None, high=None, n=0) == NOT_MEASURED
    assert estimate_ratio([[]], [[1.0]]) == NOT_MEASURED


def test_one_sample_has_a_median_and_no_interval() -> None:
    assert estimate([[12.5]]) == Estimate(median=12.5, low=None, high=None, n=1)
    assert estimate_ratio([[3.0]], [[2.0]]) == Estimate(median=1.5, low=None, high=None, n=1)


def test_two_samples_span_their_range() -> None:
    assert estimate([[10.0, 14.0]]) == Estimate(median=12.0, low=10.0, high=14.0, n=2)


def test_the_median_is_over_all_samples_of_all_prompts() -> None:
    found = estimate([[1.0, 2.0], [3.0, 4.0, 100.0]])
    assert found.median == 3.0
    assert found.n == 5


def test_one_prompt_gets_the_ordinary_percentile_bootstrap() -> None:
    samples = np.random.default_rng(3).normal(20.0, 1.0, 25)
    reference = bootstrap(
        (samples,), np.median, n_resamples=20000, method="percentile", rng=np.random.default_rng(4)
    ).confidence_interval
    found = estimate([list(samples)])
    assert found.low == pytest.approx(reference.low, abs=0.1)
    assert found.high == pytest.approx(reference.high, abs=0.1)


def test_the_interval_of_unlike_prompts_reaches_to_the_prompts() -> None:
    found = estimate([[10.0, 10.1, 9.9], [20.0, 20.1, 19.9], [30.0, 30.1, 29.9]])
    assert found.low is not None
    assert found.high is not None
    assert found.low < 10.2
    assert found.high > 29.8


def test_paired_resampling_cancels_a_drift_that_moves_both_paths() -> None:
    greedy = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    found = estimate_ratio([[2 * rate for rate in greedy]], [greedy])
    assert found.median == found.low == found.high == 2.0
    assert found.n == 6


def test_paired_resampling_draws_the_same_prompts_for_both_paths() -> None:
    found = estimate_ratio([[20.0, 20.0], [200.0, 200.0]], [[10.0, 10.0], [100.0, 100.0]])
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)


def test_prompts_of_unequal_repeats_keep_their_own_repeats() -> None:
    found = estimate([[10.0], [10.0, 10.0, 10.0]])
    assert (found.low, found.median, found.high, found.n) == (10.0, 10.0, 10.0, 4)


def test_a_prompt_of_many_repeats_outweighs_one_of_few_in_a_resample_too() -> None:
    # Nine prompts of one slow repeat, one of 25 fast ones: a resample that draws the last has a fast median.
    assert estimate([[1.0]] * 9 + [[10.0] * 25]).high == 10.0


def test_a_prompt_that_lacks_one_path_takes_no_part_in_the_ratio() -> None:
    assert estimate_ratio([[30.0, 30.0], [99.0]], [[20.0, 20.0], []]).median == 1.5


def test_groups_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        estimate_ratio([[1.0]], [[1.0], [2.0]])


@given(GROUPS)
def test_the_interval_holds_the_median_and_stays_within_the_samples(groups: list[list[float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "NUM_RESAMPLES", 200)
        found = estimate(groups)
        again = estimate(groups)
    samples = [value for group in groups for value in group]
    assert found == again
    assert found.n == len(samples)
    if found.low is not None and found.high is not None:
        assert min(samples) <= found.low <= found.high <= max(samples)
