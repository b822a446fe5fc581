from __future__ import annotations

import json as plain_json
import math

from fleet.report import json
from fleet.report.hardware import hardware_report
from tests.golden.situations import SITUATIONS
from tests.golden.study_tables import PromptSpec, RunSpec, study_tables

PROMISED = (
    "machine",
    "checkpoint",
    "verify_width",
    "slots_per_layer",
    "greedy_decode_tok_s",
    "speculative_decode_tok_s",
    "speedup",
    "mean_accept_length",
    "accept_histogram",
    "greedy_hit_ratio",
    "speculative_hit_ratio",
    "disk_load_ratio",
    "peak_bytes",
    "exactness",
    "num_mismatches",
)


def test_the_promised_keys_come_first_and_in_order() -> None:
    report = plain_json.loads(json.render(SITUATIONS["all_well"]().report()))
    assert list(report) == ["schema_version", "study", "synthetic", "machines", "rows", "warnings"]
    for row in report["rows"]:
        assert tuple(row)[: len(PROMISED)] == PROMISED
        for name in ("greedy_decode_tok_s", "speculative_decode_tok_s", "speedup"):
            assert list(row[name]) == ["median", "low", "high", "n"]
    assert {row["machine"] for row in report["rows"]} == {machine["machine"] for machine in report["machines"]}


def test_numbers_are_not_rounded() -> None:
    report = hardware_report(study_tables(RunSpec(prompts=(PromptSpec(greedy_s=(math.pi,)),))), study="s")
    assert plain_json.loads(json.render(report))["rows"][0]["greedy_decode_tok_s"]["median"] == 96 / math.pi


def test_what_was_not_measured_is_null_and_never_zero() -> None:
    nothing: dict[str, None] = dict.fromkeys(
        (
            "prefill_s",
            "ttft_s",
            "decode",
            "verify",
            "prefill",
            "num_steps",
            "accept_histogram",
            "peak_bytes",
            "rss_bytes",
        )
    )
    report = hardware_report(
        study_tables(
            RunSpec(
                prompts=(PromptSpec(greedy_s=(None, None), speculative_s=(None,)),),
                repeat_columns=nothing,
                columns={"active_bytes": None, "start_to_first_token_s": None},
                instrumented=False,
            )
        ),
        study="s",
    )
    row = plain_json.loads(json.render(report))["rows"][0]
    for key in ("greedy_decode_tok_s", "speculative_decode_tok_s", "speedup", "greedy_prefill_s", "greedy_e2e_tok_s"):
        assert row[key] == {"median": None, "low": None, "high": None, "n": 0}, key
    for key in (
        "mean_accept_length",
        "greedy_hit_ratio",
        "disk_load_ratio",
        "greedy_disk_loads_per_token",
        "peak_bytes",
        "greedy_rss_bytes",
        "greedy_num_layers_fast",
        "stages_s_per_step",
        "no_replay_tok_s",
        "no_replay_speedup",
        "accept_histogram",
    ):
        assert row[key] is None, key
    assert row["memory"]["active_bytes"] is None
    assert row["times"]["start_to_first_token_s"] is None


def test_a_number_that_json_can_not_write_is_null() -> None:
    report = hardware_report(
        study_tables(RunSpec(prompts=(PromptSpec(exactness="wrong", mismatch_gap=math.inf),))), study="s"
    )
    text = json.render(report)
    assert "Infinity" not in text
    assert plain_json.loads(text)["rows"][0]["prompts"][0]["mismatch_gap"] is None


def test_the_same_tables_give_the_same_text() -> None:
    assert json.render(SITUATIONS["tie"]().report()) == json.render(SITUATIONS["tie"]().report())
