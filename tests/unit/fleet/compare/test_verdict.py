from __future__ import annotations

import itertools

import pytest

from fleet.compare.row import Row, compare
from fleet.compare.samples import collect
from fleet.compare.stats import NOT_MEASURED
from fleet.compare.verdict import SEVERITY, combine, may_be_compared
from tests.golden.study_tables import CHECKS, PromptSpec, RunSpec, study_tables

STEADY = PromptSpec(greedy_s=(4.8,) * 6, speculative_s=(3.2,) * 6)


def row_of(*specs: RunSpec) -> Row:
    (row,) = collect(study_tables(*specs)).rows
    return compare(row)


def flag_names(row: Row) -> set[str]:
    return {flag.name for flag in row.flags}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(SEVERITY, SEVERITY)))
def test_the_worse_verdict_wins(one: str, other: str) -> None:
    assert combine([one, other]) == max(one, other, key=["identical", "tie", "drift", "wrong"].index)


def test_a_missing_or_unknown_verdict_is_no_verdict_unless_another_is_wrong() -> None:
    assert combine(["identical", None]) is None
    assert combine(["identical", "nearly"]) is None
    assert combine([None, "wrong"]) == "wrong"
    assert combine([]) is None


def test_only_a_verified_row_that_is_not_wrong_may_be_compared() -> None:
    assert [may_be_compared(verdict) for verdict in (*SEVERITY, None)] == [True, True, True, False, False]


@pytest.mark.parametrize("exactness", ["wrong", None])
def test_a_wrong_or_unverified_row_keeps_its_speeds_and_enters_no_comparison(exactness: str | None) -> None:
    prompts = (STEADY, PromptSpec(id="bad", exactness=exactness, num_mismatches=None))
    row = row_of(RunSpec(prompts=prompts))
    assert row.greedy.decode_tok_s.median == 20.0
    assert row.speculative.decode_tok_s.median == 30.0
    assert row.speedup == NOT_MEASURED
    assert row.disk_load_ratio is row.disk_load_ratio_total is row.no_replay.speedup is row.no_replay.tok_s is None
    assert row.speculation.predicted_speedup is row.speculation.measured_speedup is None
    assert [prompt.predicted_speedup is None for prompt in row.prompts] == [False, True]
    assert row.worst_level == "error"
    assert row.num_mismatches is None
    assert [prompt.speedup.n for prompt in row.prompts] == [6, 0]


def test_a_steady_exact_row_has_no_flag() -> None:
    assert row_of(RunSpec(prompts=(STEADY,))).flags == ()


@pytest.mark.parametrize(
    ("spec", "name", "level", "says"),
    [
        (RunSpec(prompts=(STEADY,), columns={"nice": 15}), "nice", "warning", "nice 15"),
        (RunSpec(prompts=(STEADY,), columns={"power_mode": "low"}), "low_power", "warning", "low power"),
        (RunSpec(prompts=(STEADY,), synthetic=True), "synthetic", "warning", "synthetic"),
        (
            RunSpec(prompts=(STEADY,), repeat_columns={"load_average_before": 24.5}),
            "high_load",
            "warning",
            "load average 24.5 on 16 cores",
        ),
        (
            RunSpec(prompts=(STEADY,), repeat_columns={"decode_tokens": 15}),
            "few_tokens",
            "warning",
            "only 15 tokens",
        ),
        (RunSpec(), "few_repeats", "note", "3 samples"),
        (RunSpec(prompts=(PromptSpec(greedy_s=(4.8,), speculative_s=(3.2,)),)), "one_repeat", "warning", "one sample"),
        (
            RunSpec(prompts=(PromptSpec(greedy_s=(4.8,) * 5 + (5.4,), speculative_s=(3.2,) * 6),)),
            "unstable_repeats",
            "warning",
            "greedy repeats of one prompt differ by 11%",
        ),
        (
            RunSpec(prompts=(STEADY, PromptSpec(id="slow", greedy_s=(9.6,) * 6, speculative_s=(6.4,) * 6))),
            "wide_interval",
            "note",
            "greedy tok/s",
        ),
        (
            RunSpec(prompts=(STEADY,), checks=dict.fromkeys(CHECKS, (3, 0)) | {"byte_oracle": (0, 0)}),
            "check_not_run",
            "error",
            "byte_oracle never ran",
        ),
        (
            RunSpec(prompts=(STEADY,), checks=dict.fromkeys(CHECKS, (3, 0)) | {"byte_oracle": (3, 1)}),
            "check_failed",
            "error",
            "byte_oracle failed 1 of 3",
        ),
        (RunSpec(prompts=(STEADY,), checks={"byte_oracle": (3, 0)}), "check_missing", "warning", "greedy_repeatable"),
        (RunSpec(prompts=(STEADY,), checks={}), "check_missing", "warning", "byte_oracle"),
    ],
)
def test_each_weakness_is_flagged_in_words(spec: RunSpec, name: str, level: str, says: str) -> None:
    row = row_of(spec)
    found = [flag for flag in row.flags if flag.name == name]
    assert found, row.flags
    assert all(flag.level == level for flag in found)
    assert any(says in flag.message for flag in found)


def test_a_width_of_one_drafts_nothing_and_needs_no_check_of_the_head() -> None:
    checks = {name: (3, 0) for name in CHECKS if name != "mtp_attachment"}
    assert row_of(RunSpec(prompts=(STEADY,), verify_width=1, checks=checks)).flags == ()
    assert flag_names(row_of(RunSpec(prompts=(STEADY,), verify_width=2, checks=checks))) == {"check_missing"}


def test_a_policy_without_drafts_needs_no_check_of_the_head() -> None:
    checks = {name: (3, 0) for name in CHECKS if name != "mtp_attachment"}
    for policy, expected in (("off", set()), ("gated", {"check_missing"}), (None, {"check_missing"})):
        row = row_of(RunSpec(prompts=(STEADY,), checks=checks, columns={"draft_policy": policy}))
        assert flag_names(row) == expected, policy


TRIED = {"prefetch_trial_off_s": 0.05, "prefetch_trial_on_s": 0.0525}


def test_a_trial_that_left_prefetch_off_is_told_with_both_times() -> None:
    (flag,) = row_of(RunSpec(prompts=(STEADY,), prefetch="off", columns=TRIED)).flags
    assert (flag.name, flag.level) == ("prefetch_lost", "note")
    assert "52.5 ms per token with it, 50 ms without" in flag.message


def test_a_trial_that_kept_prefetch_and_a_task_that_decided_are_not_flagged() -> None:
    kept = {"prefetch_trial_off_s": 0.05, "prefetch_trial_on_s": 0.042}
    assert row_of(RunSpec(prompts=(STEADY,), prefetch="on", columns=kept)).flags == ()
    assert row_of(RunSpec(prompts=(STEADY,), prefetch="off")).flags == ()
    assert row_of(RunSpec(prompts=(STEADY,), columns={"prefetch_trial_off_s": 0.05})).flags == ()


def test_a_row_measured_by_two_builds_is_flagged() -> None:
    row = row_of(
        RunSpec(prompts=(STEADY,), task_id="t1"),
        RunSpec(prompts=(PromptSpec(id="b"),), task_id="t2", build_hash="a" * 16),
    )
    assert "mixed_builds" in flag_names(row)
    assert row.build_hashes == ("a" * 16, "b" * 16)


def test_the_gravest_flag_comes_first() -> None:
    row = row_of(RunSpec(columns={"nice": 15}, checks=dict.fromkeys(CHECKS, (3, 0)) | {"byte_oracle": (0, 0)}))
    assert [flag.level for flag in row.flags] == ["error", "warning", "note"]
    unsteady = PromptSpec(id="slow", greedy_s=(9.6,) * 5 + (12.0,), speculative_s=(6.4,) * 6)
    names = [flag.name for flag in row_of(RunSpec(prompts=(STEADY, unsteady))).flags]
    assert names.index("unstable_repeats") < names.index("wide_interval")


def test_checks_add_up_over_prompts_and_pass_only_if_they_ran() -> None:
    row = row_of(
        RunSpec(prompts=(STEADY, PromptSpec(id="b")), checks={"zzz": (1, 0), "byte_oracle": (2, 0), "x": (0, 0)})
    )
    assert [(check.name, check.num_run, check.num_failed, check.passed) for check in row.checks] == [
        ("byte_oracle", 4, 0, True),
        ("x", 0, 0, False),
        ("zzz", 2, 0, True),
    ]
