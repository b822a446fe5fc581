"""What prefetch brought, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from fleet.compare.prefetch import (
    PrefetchFigures,
    PrefetchTrial,
    prefetch_figures,
    prefetch_trial,
    read_bytes_s,
)
from fleet.compare.records import Counters, Repeat
from fleet.compare.row import compare
from fleet.compare.samples import RowSamples, collect
from tests.golden.study_tables import PromptSpec, RunSpec, study_tables


def row_of(*specs: RunSpec) -> RowSamples:
    (row,) = collect(study_tables(*specs)).rows
    return row


ROW = row_of(RunSpec(prefetch="on"))
GREEDY, SPECULATIVE = ROW.select("greedy"), ROW.select("speculative")
NOTHING = PrefetchFigures(**dict.fromkeys((field.name for field in fields(PrefetchFigures)), None))


def decode_of(repeat: Repeat) -> Counters:
    assert repeat.decode is not None
    return repeat.decode


def test_counts_are_per_emitted_token_of_generation() -> None:
    found = prefetch_figures(GREEDY)
    assert (found.submitted_per_token, found.hits_per_token, found.late_per_token) == (16, 10, 2)
    assert (found.evicted_per_token, found.cancelled_per_token, found.dropped_per_token) == (1, 3, 2)
    assert found.unpredicted_per_token == 6
    # 48 verify forwards emit 96 tokens.
    assert prefetch_figures(SPECULATIVE).submitted_per_token == 20
    assert prefetch_figures(SPECULATIVE).unpredicted_per_token == 7


def test_a_prefill_s_counts_stay_out() -> None:
    ahead = tuple(replace(r, prefill=replace(decode_of(r), num_prefetch_submitted=10**6)) for r in GREEDY)
    assert prefetch_figures(ahead) == prefetch_figures(GREEDY)


def test_useful_is_hits_over_what_was_submitted() -> None:
    assert prefetch_figures(GREEDY).useful_ratio == 10 / 16
    assert prefetch_figures(SPECULATIVE).useful_ratio == 12 / 20
    none = tuple(replace(r, decode=replace(decode_of(r), num_prefetch_submitted=0)) for r in GREEDY)
    assert prefetch_figures(none).useful_ratio is None
    assert prefetch_figures(none).submitted_per_token == 0


def test_recall_is_weighted_by_predictions_and_the_window_by_its_own_count() -> None:
    one = replace(GREEDY[0], predict_recall_ratio=0.9, num_predictions=100, prefetch_window_mean_s=0.002)
    other = replace(GREEDY[0], predict_recall_ratio=0.5, num_predictions=300, prefetch_window_mean_s=0.006)
    idle = replace(GREEDY[0], predict_recall_ratio=None, num_predictions=0, prefetch_window_mean_s=None)
    found = prefetch_figures(
        [replace(one, prefetch_window_n=30), replace(other, prefetch_window_n=10), replace(idle, prefetch_window_n=0)]
    )
    assert found.recall_ratio == pytest.approx((0.9 * 100 + 0.5 * 300) / 400)
    assert found.window_mean_s == pytest.approx((0.002 * 30 + 0.006 * 10) / 40)


def test_host_time_is_predicting_submitting_and_promoting_per_token() -> None:
    assert prefetch_figures(GREEDY).host_s_per_token == pytest.approx((0.072 + 0.048 + 0.024) / 96)
    partly = [GREEDY[0], replace(GREEDY[1], submit_host_s=None)]
    assert prefetch_figures(partly).host_s_per_token == pytest.approx(0.144 / 96)


def test_without_prefetch_nothing_is_measured() -> None:
    assert prefetch_figures(row_of(RunSpec()).select("greedy")) == NOTHING


@pytest.mark.parametrize("prefetch", ["off", None])
def test_a_row_without_prefetch_has_no_figures_of_it(prefetch) -> None:
    row = compare(row_of(RunSpec(prefetch=prefetch)))
    assert (row.greedy.prefetch, row.speculative.prefetch) == (None, None)


def test_a_row_with_prefetch_has_each_path_s_own_measured_figures() -> None:
    (prompt,) = ROW.prompts
    slowed = tuple(replace(r, predict_host_s=9.0) if r.instrumented else r for r in prompt.repeats)
    row = compare(replace(ROW, prompts=(replace(prompt, repeats=slowed),)))
    assert row.greedy.prefetch == prefetch_figures(GREEDY)
    assert row.speculative.prefetch == prefetch_figures(SPECULATIVE)
    assert row.greedy.prefetch != row.speculative.prefetch


def test_rows_that_differ_in_prefetch_are_not_blended() -> None:
    specs = (RunSpec(prefetch=prefetch, task_id=prefetch) for prefetch in ("on", "off"))
    assert len(collect(study_tables(*specs)).rows) == 2


def test_what_prefetch_brought_is_no_hit_of_the_pool() -> None:
    with_it, without = compare(ROW), compare(row_of(RunSpec()))
    assert with_it.greedy.hit_ratio == without.greedy.hit_ratio == (32 - 20) / 32
    assert (with_it.greedy.disk_loads_per_token, without.greedy.disk_loads_per_token) == (8, 20)


def test_the_made_up_counters_balance_as_the_worker_s_do() -> None:
    for phase in (*(r.decode for r in GREEDY), *(r.verify for r in SPECULATIVE)):
        c = {field.name: getattr(phase, field.name) or 0 for field in fields(Counters)}
        assert c["num_routed"] == c["num_hits"] + c["num_disk_loads"] + c["num_misses_predicted_late"]
        causes = ("predicted_late", "predicted_evicted", "predicted_dropped", "unpredicted")
        assert sum(c[f"num_misses_{cause}"] for cause in causes) == c["num_routed"] - c["num_hits"]
        assert c["num_predicted"] == c["num_prefetch_submitted"] + c["num_prefetch_dropped"]
        assert c["num_prefetch_submitted"] == c["num_prefetch_loads"] + c["num_prefetch_cancelled"]
        read = c["num_prefetch_hits"] + c["num_misses_predicted_late"] + c["num_prefetch_evicted"]
        assert c["num_prefetch_loads"] == read


def test_the_reading_speed_is_all_bytes_over_all_active_time() -> None:
    one = replace(GREEDY[0], reader_bytes=6 * 10**9, reader_active_s=2.0)
    other = replace(GREEDY[0], reader_bytes=1 * 10**9, reader_active_s=1.5)
    assert read_bytes_s([one, other]) == 2e9
    assert read_bytes_s([one, replace(other, reader_active_s=None)]) == 3e9
    assert read_bytes_s([replace(one, reader_bytes=0, reader_active_s=0.0)]) is None
    assert read_bytes_s([]) is None


def test_a_row_s_reading_speed_leaves_instrumented_repeats_out() -> None:
    slow = tuple(
        replace(r, reader_bytes=10**9 if r.instrumented else 4 * 10**9, reader_active_s=1.0)
        for r in ROW.prompts[0].repeats
    )
    row = compare(replace(ROW, prompts=(replace(ROW.prompts[0], repeats=slow),)))
    assert (row.greedy.read_bytes_s, row.speculative.read_bytes_s) == (4e9, 4e9)


def test_the_trial_is_the_first_run_s_that_had_one() -> None:
    tried = {"prefetch_trial_off_s": 0.05, "prefetch_trial_on_s": 0.042}
    row = row_of(
        RunSpec(prefetch="on", task_id="t1"),
        RunSpec(prefetch="on", task_id="t2", prompts=(PromptSpec(id="b"),), columns=tried),
    )
    assert compare(row).prefetch_trial == PrefetchTrial(off_s=0.05, on_s=0.042, kept=True)
    assert prefetch_trial([row.prompts[0].run]) is None
    assert prefetch_trial([replace(row.prompts[1].run, prefetch="off")]) == PrefetchTrial(
        off_s=0.05, on_s=0.042, kept=False
    )
