from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fleet.compare.records import Check, Counters, Repeat, Run, Step
from fleet.compare.samples import SETTINGS, collect
from tests.golden.study_tables import M2, PromptSpec, RunSpec, study_tables
from worker.contract.schema import CHECKS, COUNTERS, REPEATS, RUNS, SCHEMAS, STEPS
from worker.machine.comparability import COMPARABLE_FIELDS


def test_every_field_is_a_column() -> None:
    for record, names in ((Run, RUNS.names), (Repeat, REPEATS.names), (Step, STEPS.names), (Check, CHECKS.names)):
        assert set(record.__dataclass_fields__) <= set(names)
    assert set(Counters.__dataclass_fields__) <= {COUNTERS.field(i).name for i in range(COUNTERS.num_fields)}


def test_no_tables_and_empty_tables_are_no_rows() -> None:
    assert collect({}).rows == ()
    assert collect(study_tables()).rows == ()


def test_prompts_of_one_point_share_a_row_and_points_do_not() -> None:
    prompts = (PromptSpec(id="a"), PromptSpec(id="b"))
    rows = collect(
        study_tables(
            RunSpec(prompts=prompts), RunSpec(slots_per_layer=64), RunSpec(verify_width=2), RunSpec(node="mini")
        )
    ).rows
    assert [(row.key.node, row.key.verify_width, row.key.slots_per_layer, len(row.prompts)) for row in rows] == [
        ("mini", 3, 32, 1),
        ("studio-1", 2, 32, 1),
        ("studio-1", 3, 32, 2),
        ("studio-1", 3, 64, 1),
    ]


def test_memory_budgets_are_points_of_their_own_in_order_of_their_size() -> None:
    none: dict[str, None] = {"slots_per_layer": None}
    rows = collect(
        study_tables(
            RunSpec(task_id="b", columns={**none, "memory_budget_bytes": 10 * 2**30}),
            RunSpec(task_id="a", columns={**none, "memory_budget_bytes": 9 * 2**30}),
        )
    ).rows
    assert [row.key.memory_budget_bytes for row in rows] == [9 * 2**30, 10 * 2**30]


def test_every_column_that_configures_a_run_is_in_the_key_or_excused() -> None:
    names = RUNS.names
    configuration = {*names[names.index("hardware_model") : names.index("process_start_s")], "schema_version"}
    own = {"checkpoint", "checkpoint_digest", "verify_width", "slots_per_layer", "memory_budget_bytes"}
    follows_from_others = {
        "cpu_tiers",
        "num_moe_layers",
        "num_experts",
        "experts_per_token",
        "expert_record_bytes",
        "num_draft_tokens",
        "slots_by_layer",
        "num_pool_slots",
        "num_pinned_experts",
        "prefetch_trial_off_s",
        "prefetch_trial_on_s",
        "mlx_wired_limit_bytes",
    }
    per_prompt = {"prompt_category", "prompt_digest", "prompt_text", "num_prompt_tokens"}
    how_often = {"repeats", "instrumented_repeats"}
    assert {*COMPARABLE_FIELDS, *SETTINGS} == configuration - own - follows_from_others - per_prompt - how_often


@pytest.mark.parametrize("column", [*COMPARABLE_FIELDS, *SETTINGS, "checkpoint_digest", "synthetic"])
def test_runs_that_differ_in_machine_software_or_settings_are_never_blended(column: str) -> None:
    kind = RUNS.field(column).type
    values: list[Any] = ["one", "two"]
    if pa.types.is_boolean(kind):
        values = [True, False]
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = [1, 2]
    rows = collect(
        study_tables(
            RunSpec(task_id="t1", columns={column: values[0]}), RunSpec(task_id="t2", columns={column: values[1]})
        )
    ).rows
    assert len(rows) == 2


def test_an_unknown_value_is_not_blended_with_a_known_one() -> None:
    rows = collect(
        study_tables(
            RunSpec(task_id="t1", columns={"power_mode": None}), RunSpec(task_id="t2", columns={"power_mode": "normal"})
        )
    ).rows
    assert len(rows) == 2


def test_only_the_latest_attempt_of_a_task_counts() -> None:
    found = collect(study_tables(RunSpec(attempt=2), RunSpec(attempt=1)))
    assert found.num_superseded == 1
    assert [prompt.run.attempt_id for row in found.rows for prompt in row.prompts] == ["studio-1-w3-s32-2"]


def test_one_task_on_two_machines_is_two_rows_and_nothing_is_left_out() -> None:
    found = collect(study_tables(RunSpec(task_id="t"), RunSpec(task_id="t", node="mini", machine=M2, attempt=2)))
    assert found.num_superseded == 0
    assert len(found.rows) == 2


def test_instrumented_repeats_and_their_steps_are_kept_apart_from_the_measured() -> None:
    tables = study_tables(RunSpec())
    steps = tables["steps"].to_pylist()
    tables["steps"] = pa.Table.from_pylist(steps + [step | {"instrumented": True} for step in steps], schema=STEPS)
    (row,) = collect(tables).rows
    assert [r.decode_s for r in row.select("greedy")] == [4.8, 4.9, 4.7]
    assert [r.decode_s for r in row.select("greedy", instrumented=True)] == [6.0]
    assert len(row.prompts[0].steps) == 3 * 48


def test_repeats_stand_in_the_order_in_which_they_ran() -> None:
    tables = study_tables(RunSpec())
    tables["repeats"] = tables["repeats"].take(list(reversed(range(tables["repeats"].num_rows))))
    (row,) = collect(tables).rows
    assert [r.sequence_index for r in row.prompts[0].repeats] == list(range(8))


def test_a_check_of_the_whole_attempt_is_counted_once() -> None:
    tables = study_tables(RunSpec(prompts=(PromptSpec(id="a"), PromptSpec(id="b")), checks={}))
    check = {
        "study_id": "5" * 16,
        "task_id": "studio-1-w3-s32",
        "attempt_id": "studio-1-w3-s32-1",
        "name": "record_digests",
        "num_run": 512,
        "num_failed": 0,
    }
    tables["checks"] = pa.Table.from_pylist([dict.fromkeys(CHECKS.names) | check], schema=CHECKS)
    (row,) = collect(tables).rows
    assert [check.num_run for prompt in row.prompts for check in prompt.checks] == [512]


def test_a_table_of_another_schema_is_refused_by_name() -> None:
    tables = study_tables(RunSpec())
    tables["repeats"] = tables["repeats"].drop_columns(["decode_s"])
    with pytest.raises(ValueError, match="the table repeats differs"):
        collect(tables)
    assert set(SCHEMAS) == set(tables)
