"""Every ratio against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.compare import relative
from fleet.compare.records import Repeat, Step
from fleet.compare.row import compare
from fleet.compare.samples import RowSamples, collect
from fleet.compare.stats import Estimate
from tests.golden.study_tables import PromptSpec, RunSpec, study_tables


def row_of(*specs: RunSpec) -> RowSamples:
    (row,) = collect(study_tables(*specs)).rows
    return row


ROW = row_of(RunSpec())
GREEDY, SPECULATIVE = ROW.select("greedy"), ROW.select("speculative")


def with_counter(repeats: tuple[Repeat, ...], **values: int | None) -> tuple[Repeat, ...]:
    return tuple(
        replace(
            r,
            decode=replace(r.decode, **values) if r.decode else None,
            verify=replace(r.verify, **values) if r.verify else None,
            prefill=replace(r.prefill, **values) if r.prefill else None,
        )
        for r in repeats
    )


def test_the_optimum_is_set_against_the_same_instrumented_repeats() -> None:
    repeats = row_of(RunSpec(repeat_columns={"num_hits_optimal": 2400})).select("greedy", instrumented=True)
    assert relative.optimal_hit_ratio(repeats) == 2400 / (32 * 96)
    assert relative.hits_of_optimal_ratio(repeats) == (32 - 20) * 96 / 2400
    unknown = ROW.select("greedy", instrumented=True)
    assert (relative.optimal_hit_ratio(unknown), relative.hits_of_optimal_ratio(unknown)) == (None, None)
    assert relative.hits_of_optimal_ratio([*repeats, *unknown]) == (32 - 20) * 96 / 2400


def test_decode_rate_counts_the_tokens_after_the_first() -> None:
    assert GREEDY[0].decode_tok_s == (97 - 1) / 4.8


def test_end_to_end_rate_counts_all_tokens_over_prefill_and_decode() -> None:
    assert GREEDY[0].e2e_tok_s == 97 / (0.5 + 4.8)


@pytest.mark.parametrize(
    "change", [{"decode_s": None}, {"decode_s": 0.0}, {"decode_tokens": None}, {"decode_tokens": 1}]
)
def test_a_rate_that_was_not_measured_is_null(change: dict[str, float | None]) -> None:
    assert replace(GREEDY[0], **change).decode_tok_s is None


def test_speedup_is_the_ratio_of_the_medians() -> None:
    assert relative.speedup(ROW.prompts).median == pytest.approx(4.8 / 3.2)


def test_hit_ratio_is_hits_over_routed_pairs_without_prefill() -> None:
    assert relative.hit_ratio(GREEDY) == (32 - 20) / 32
    assert relative.hit_ratio(SPECULATIVE) == pytest.approx((60 * 48 - 24 * 96) / (60 * 48))
    assert relative.hit_ratio(GREEDY, ("prefill",)) == (160 - 100) / 160
    assert relative.hit_ratio(GREEDY, ("verify",)) is None


def test_replays_count_among_the_speculative_path_s_loads() -> None:
    replays = tuple(replace(r, decode=GREEDY[0].decode) for r in SPECULATIVE)
    assert relative.per_token(replays, "num_disk_loads") == 24 + 20


def test_disk_loads_per_token_divide_by_the_tokens_that_generation_emitted() -> None:
    assert relative.per_token(GREEDY, "num_disk_loads") == 20
    assert relative.per_token(SPECULATIVE, "num_disk_loads") == 24


def test_disk_load_ratio_is_per_token_and_the_total_holds_the_prefill() -> None:
    assert relative.disk_load_ratio(SPECULATIVE, GREEDY) == pytest.approx(24 / 20)
    assert relative.disk_load_ratio_total(SPECULATIVE, GREEDY) == pytest.approx((24 * 96 + 100) / (20 * 96 + 100))


def test_a_greedy_path_that_read_nothing_has_no_ratio() -> None:
    resident = row_of(RunSpec(greedy_loads_per_token=0, speculative_loads_per_token=0))
    assert relative.disk_load_ratio(resident.select("speculative"), resident.select("greedy")) is None
    assert relative.per_token(resident.select("greedy"), "num_disk_loads") == 0
    assert relative.hit_ratio(resident.select("greedy")) == 1.0


def test_counters_that_were_not_measured_stay_null() -> None:
    assert relative.hit_ratio(with_counter(GREEDY, num_hits=None)) is None
    assert relative.per_token(with_counter(GREEDY, num_disk_loads=None), "num_disk_loads") is None
    assert relative.total(GREEDY, "num_layers_fast") is None


def test_mean_accept_length_counts_the_bonus_token_and_not_the_prefill_s() -> None:
    found = relative.acceptance(SPECULATIVE, ())
    assert found.mean_length == (97 - 1) / 48
    assert found.histogram == (36, 72, 36)
    assert sum((i + 1) * n for i, n in enumerate((12, 24, 12))) / 48 == found.mean_length


def test_acceptance_by_position_unconditional_and_conditional() -> None:
    found = relative.acceptance(SPECULATIVE, ROW.prompts[0].steps)
    assert found.unconditional == (36 / 48, 12 / 48)
    assert found.conditional == (36 / 48, 12 / 36)


def test_a_position_that_was_not_drafted_does_not_count_as_refused() -> None:
    steps = [
        Step(num_drafted=2, num_accepted=2),
        Step(num_drafted=2, num_accepted=1),
        Step(num_drafted=1, num_accepted=1),
        Step(num_drafted=2, num_accepted=0),
    ]
    assert relative.acceptance((), steps).conditional == (3 / 4, 1 / 2)


def test_no_replay_bound_takes_the_replays_share_out_of_the_measured_figures() -> None:
    row = row_of(RunSpec(repeat_columns={"replay_s": 0.96}))
    found = compare(row).no_replay
    assert found.replay_share_ratio == pytest.approx(0.96 / 4.8)
    assert found.tok_s == pytest.approx(30.0 / 0.8)
    assert found.speedup == pytest.approx(1.5 / 0.8)


def test_without_replays_the_bound_is_the_measured_figure() -> None:
    row = compare(ROW)
    assert (row.no_replay.tok_s, row.no_replay.speedup) == (row.speculative.decode_tok_s.median, row.speedup.median)


def test_no_replay_bound_is_null_without_a_replay_time() -> None:
    rate = Estimate(median=30.0, low=None, high=None, n=1)
    assert relative.no_replay(SPECULATIVE, rate, rate) == relative.NoReplay(
        replay_share_ratio=None, tok_s=None, speedup=None
    )


def test_stage_times_are_per_step_and_the_rest_is_signed() -> None:
    found = relative.stage_times(ROW.select("speculative", instrumented=True))
    assert found is not None
    stages = dict(found.per_step)
    assert stages["verify_s"] == 3.84 / 48
    assert stages["finalize_s"] is None
    assert found.other_s == pytest.approx((4.8 - 0.48 - 0.048 - 3.84 - 0.048 - 0.0 - 0.096) / 48)
    assert relative.stage_times(()) is None


def test_instrumented_repeats_never_enter_a_rate() -> None:
    slow = compare(row_of(RunSpec()))
    assert slow.greedy.decode_tok_s.median == 20.0
    assert slow.greedy.decode_tok_s.n == 3


def test_a_row_s_memory_split_is_one_process_s_and_adds_up() -> None:
    row = compare(
        row_of(
            RunSpec(task_id="t1"),
            RunSpec(
                task_id="t2", prompts=(PromptSpec(id="b"),), columns={"active_bytes": 2**20, "weights_bytes": 2**30}
            ),
        )
    )
    parts = row.memory
    assert parts.active_bytes == 200 * 2**20
    assert parts.staging_bytes is None
    known = (parts.weights_bytes, parts.expert_pool_bytes, parts.mtp_head_bytes, parts.unattributed_bytes)
    assert sum(part or 0 for part in known) == parts.active_bytes


def test_a_row_s_speedups_are_medians_over_its_prompts() -> None:
    row = row_of(RunSpec(prompts=tuple(PromptSpec(id=name) for name in "abc")))
    pairs = {"a": (1.2, 1.1), "b": (1.5, 1.7), "c": (2.0, 1.3)}
    prompts = tuple(
        replace(p, run=replace(p.run, predicted_speedup=predicted, measured_speedup=measured))
        for p in row.prompts
        for predicted, measured in [pairs[p.run.prompt_id or ""]]
    )
    found = compare(replace(row, prompts=prompts))
    assert (found.speculation.predicted_speedup, found.speculation.measured_speedup) == (1.5, 1.3)
    assert {p.prompt_id: p.predicted_speedup for p in found.prompts} == {"a": 1.2, "b": 1.5, "c": 2.0}
    assert found.speculation.verify_cost_s == (0.05, 0.052, 0.055, 0.06, 0.07)


def test_a_prompt_without_a_prediction_is_left_out_of_the_median() -> None:
    assert relative.median_of([None, 1.0, 3.0]) == 2.0
    assert relative.median_of([None]) is None


def test_peak_is_the_largest_of_any_measured_repeat() -> None:
    assert compare(ROW).peak_bytes == 230 * 2**20
    assert compare(row_of(RunSpec(repeat_columns={"peak_bytes": None}))).peak_bytes is None
