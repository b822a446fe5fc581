"""A run fills every column of the contract that this engine can measure, and its numbers agree with each other."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import mlx.core as mx
import numpy as np
import pytest

from fleet.report.hardware import hardware_report
from tests.conftest import CODE
from worker.benchmark.run import RunLabels, run_task
from worker.benchmark.trial import MIN_GAIN_RATIO, try_prefetch
from worker.contract.errors import CheckpointError, TaskError
from worker.contract.schema import SCHEMAS
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task
from worker.decode.generation import Request

LABELS = RunLabels(study_id="s", attempt_id="a", node="n")
TASK = Task(
    checkpoint=CheckpointRef(source="demo"),
    prompts=(
        Prompt(id="code", category="code", text=CODE, chat=False),
        Prompt(id="chat", category="chat", text="What is a queue?"),
    ),
    verify_width=3,
    slots_per_layer=20,
    prefetch="on",
    protocol=Protocol(max_tokens=20, repeats=2, warmup_tokens=4, rewarm_tokens=2),
)

ONLY_ELSEWHERE = {
    # tasks that leave prefetch to a trial
    "prefetch_trial_off_s",
    "prefetch_trial_on_s",
    # tasks with a memory budget (test_a_budget_becomes_slots.py)
    "memory_budget_bytes",
    "allocate_s",
    # no difference to explain, or nothing of the kind on Linux
    "first_mismatch_index",
    "mismatch_gap",
    "logit_quantum",
    "hardware_model",
    "cpu_tiers",
    "gpu_cores",
    "os_build",
    "wired_limit_bytes",
    "mlx_wired_limit_bytes",
    "power_mode",
    "omp_num_threads",
}


@pytest.fixture(scope="module")
def tables(cache_directory):
    progress = []
    found = run_task(TASK, LABELS, cache_directory, progress.append)
    assert [p.fraction for p in progress] == sorted(p.fraction for p in progress)
    assert progress[-1].phase == "done"
    assert [p.prompt_id for p in progress if p.phase == "costs"] == ["code"]
    return {name: table.to_pylist() for name, table in found.items()}


def _of(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_every_table_has_rows_for_both_prompts(tables):
    assert set(tables) == set(SCHEMAS)
    for name, rows in tables.items():
        if name == "events":  # on request only
            assert rows == []
            continue
        assert {row["prompt_id"] for row in rows} == {"code", "chat"}, name
        assert {(row["study_id"], row["task_id"], row["attempt_id"]) for row in rows} == {("s", TASK.id, "a")}


@pytest.mark.parametrize("name", ["runs", "repeats"])
def test_every_column_is_measured_here_or_elsewhere(tables, name: str):
    filled = {column for row in tables[name] for column, value in row.items() if value is not None}
    assert set(SCHEMAS[name].names) - filled <= ONLY_ELSEWHERE


def test_the_run_is_identical_and_its_controls_ran(tables):
    for row in tables["runs"]:
        assert (row["exactness"], row["exact"], row["num_mismatches"]) == ("identical", True, 0)
        assert row["width_logit_diff_max"] == 0.0
    for row in tables["checks"]:
        assert row["num_failed"] == 0, row
        assert row["num_run"] > 0, row
    names = {row["name"] for row in tables["checks"]}
    assert names == {
        "byte_oracle",
        "greedy_repeatable",
        "speculative_repeatable",
        "width_logits",
        "counters_balance",
        "record_digests",
        "write_visibility",
        "mtp_attachment",
    }


def test_both_sequences_are_stored_and_equal(tables):
    for prompt in ("code", "chat"):
        paths = [
            [row["token_id"] for row in _of(tables["tokens"], prompt_id=prompt, path=path)]
            for path in ("greedy", "speculative")
        ]
        assert paths[0] == paths[1]
        assert all(row["top2_margin"] >= 0 for row in _of(tables["tokens"], prompt_id=prompt, path="greedy"))
        assert {row["top2_margin"] for row in _of(tables["tokens"], prompt_id=prompt, path="speculative")} == {None}


def test_one_row_per_repeat_in_the_order_of_the_protocol(tables):
    rows = _of(tables["repeats"], prompt_id="code")
    assert [(row["path"], row["instrumented"]) for row in rows] == [
        ("greedy", False),
        ("speculative", False),
        ("speculative", False),
        ("greedy", False),
        ("greedy", True),
        ("speculative", True),
    ]
    assert [row["sequence_index"] for row in rows] == list(range(6))


def test_counters_are_those_of_one_repeat(tables):
    for row in tables["repeats"]:
        generation = row["decode"] if row["path"] == "greedy" else row["verify"]
        forwards = row["num_tokens"] - 1 if row["path"] == "greedy" else row["num_steps"]
        assert generation["num_forwards"] == forwards
        assert generation["num_layers_fallback"] == 8 * forwards
        late = generation["num_misses_predicted_late"]
        assert generation["num_hits"] + generation["num_disk_loads"] + late == generation["num_routed"]
        phases = [row[phase] for phase in ("prefill", "decode", "verify") if row[phase]]
        read = sum(phase["num_disk_loads"] + phase["num_prefetch_loads"] for phase in phases)
        assert read == row["reader_completed"] == row["reader_submitted"] - row["reader_cancelled"]
        assert row["verify"] is None or row["path"] == "speculative"


def test_what_was_foreseen_is_told_by_repeat_and_by_layer(tables):
    for row in tables["repeats"]:
        generation = row["decode"] if row["path"] == "greedy" else row["verify"]
        assert row["num_predictions"] <= 7 * generation["num_forwards"]
        assert 0.4 < row["predict_recall_ratio"] <= 1
        assert generation["num_prefetch_hits"] > 0
        assert 0 < row["prefetch_window_n"] <= generation["num_prefetch_submitted"]
        parts = row["promote_take_host_s"] + row["promote_route_host_s"] + row["promote_place_host_s"]
        assert parts == pytest.approx(row["promote_host_s"])
        if row["instrumented"]:
            layers = _of(tables["layers"], prompt_id=row["prompt_id"], path=row["path"])
            assert all(layer["num_predictions"] is None for layer in layers if layer["layer"] == 0)
            for name in ("num_prefetch_hits", "num_prefetch_submitted", "num_misses_predicted_late"):
                assert sum(layer[name] or 0 for layer in layers) == generation[name]
            ranks = np.sum([layer["num_right_by_rank"] for layer in layers if layer["num_right_by_rank"]], axis=0)
            assert ranks[0] > ranks[-1] > 0


def test_a_trial_decides_and_is_stored_where_the_task_leaves_it_open(cache_directory):
    task = replace(TASK, prompts=TASK.prompts[:1], prefetch="auto", protocol=replace(TASK.protocol, repeats=1))
    found = run_task(task, LABELS, cache_directory)
    (run,) = found["runs"].to_pylist()
    assert run["prefetch_trial_on_s"] > 0
    assert run["prefetch_trial_off_s"] > 0
    faster = run["prefetch_trial_on_s"] < run["prefetch_trial_off_s"] * (1 - MIN_GAIN_RATIO)
    assert run["prefetch"] == ("on" if faster else "off")
    for row in found["repeats"].to_pylist():
        assert (row["num_predictions"] is None) == (run["prefetch"] == "off")
        generation = row["decode"] or row["verify"]
        assert (generation["num_misses_unpredicted"] is None) == (run["prefetch"] == "off")


@pytest.mark.parametrize(("on_s", "kept"), [(1.0, False), (0.98, False), (0.96, True), (1.5, False)])
def test_prefetch_is_kept_only_where_it_gains(make_target, on_s: float, kept: bool):
    target = make_target(20)
    seen = []

    def segment():
        seen.append(target.pools[0].prefetcher is not None)
        return on_s if seen[-1] else 1.0

    decision = try_prefetch(
        target, Request(prompt_ids=(1,), max_tokens=2, stop_ids=frozenset(), prefill_chunk_tokens=1), segment=segment
    )
    assert (decision.on, decision.trial_off_s, decision.trial_on_s) == (kept, 1.0, on_s)
    assert (target.pools[0].prefetcher is not None) == kept
    assert seen.count(True) == seen.count(False) == 4


def test_no_repeat_hits_more_often_than_the_optimum_on_its_own_routing(tables):
    for row in tables["repeats"]:
        if not row["instrumented"]:
            assert row["num_hits_optimal"] is None
            continue
        phases = [row[phase] for phase in ("decode", "verify") if row[phase]]
        hits, ahead, routed = (
            sum(phase[name] for phase in phases) for name in ("num_hits", "num_prefetch_hits", "num_routed")
        )
        hits -= ahead  # what eviction kept, without what prefetch brought
        layers = _of(tables["layers"], prompt_id=row["prompt_id"], path=row["path"])
        assert 0 < hits < row["num_hits_optimal"] <= routed
        assert sum(layer["num_hits_optimal"] for layer in layers) == row["num_hits_optimal"]
        for index in range(8):
            own = _of(layers, layer=index)
            kept = sum(layer["num_hits"] - (layer["num_prefetch_hits"] or 0) for layer in own)
            assert kept <= sum(layer["num_hits_optimal"] for layer in own)


def test_steps_add_up_to_the_repeat(tables):
    for row in _of(tables["repeats"], path="speculative"):
        keys = {key: row[key] for key in ("prompt_id", "instrumented", "repeat_index")}
        steps = _of(tables["steps"], **keys)
        assert len(steps) == row["num_steps"] == sum(row["accept_histogram"])
        assert sum(step["num_emitted"] for step in steps) == row["num_tokens"] - 1
        assert steps[-1]["at_s"] == row["decode_s"]
        assert row["num_direct_commits"] == row["num_steps"] - 1
        assert row["num_replays"] == row["num_replayed_tokens"] == 0
        accepted = sum(n * count for n, count in enumerate(row["accept_histogram"]))
        assert sum(row["num_accepted_by_position"]) == accepted
        assert (row["verify_s"] is None) == (not row["instrumented"])


def test_every_row_has_the_task_s_costs_and_its_own_speedups(tables):
    costs = {(*row["verify_cost_s"], row["draft_cost_s"], row["head_sync_cost_s"]) for row in tables["runs"]}
    assert len(costs) == 1
    *verify_s, draft_s, sync_s = costs.pop()
    assert len(verify_s) == 5
    for run in tables["runs"]:
        repeats = _of(tables["repeats"], prompt_id=run["prompt_id"], instrumented=False)
        rates = {
            path: median((row["decode_tokens"] - 1) / row["decode_s"] for row in _of(repeats, path=path))
            for path in ("greedy", "speculative")
        }
        assert run["measured_speedup"] == pytest.approx(rates["speculative"] / rates["greedy"])
        speculative = _of(repeats, path="speculative")
        length = sum(row["num_tokens"] - 1 for row in speculative) / sum(row["num_steps"] for row in speculative)
        assert run["predicted_speedup"] == pytest.approx(length * verify_s[0] / (verify_s[2] + sync_s + draft_s))


@pytest.mark.parametrize(("policy", "confidence"), [("gated", 0.5), ("gated", 1.0), ("off", 0.3)])
def test_a_policy_with_fewer_drafts_is_counted_and_judged_by_what_it_did(cache_directory, policy, confidence):
    protocol = Protocol(max_tokens=24, repeats=1, warmup_tokens=0, rewarm_tokens=0)
    task = replace(TASK, prompts=TASK.prompts[:1], draft_policy=policy, draft_confidence=confidence, protocol=protocol)
    tables = run_task(task, LABELS, cache_directory)
    found = {name: table.to_pylist() for name, table in tables.items()}
    (run,) = found["runs"]
    assert (run["exactness"], run["draft_policy"], run["draft_confidence"]) == ("identical", policy, confidence)
    assert [check for check in found["checks"] if check["num_failed"] or not check["num_run"]] == []
    names = [check["name"] for check in found["checks"]]
    assert ("mtp_attachment" in names) == (policy == "gated")
    for row in _of(found["repeats"], path="speculative"):
        steps = _of(found["steps"], instrumented=row["instrumented"])
        drafted = [step["num_drafted"] for step in steps]
        assert len(set(drafted)) == (3 if confidence == 0.5 else 1)
        assert row["num_drafted_by_position"] == [sum(n > i for n in drafted) for i in range(2)]
        assert row["num_drafted_by_position"][0] >= row["num_accepted_by_position"][0]
        assert sum(row["accept_histogram"]) == row["num_steps"] == len(steps)
    flags = {flag.name for flag in hardware_report(tables, study="s").rows[0].figures.flags}
    assert flags & {"check_missing", "check_not_run", "check_failed"} == set()
    if policy == "off":
        assert run["predicted_speedup"] == 1.0


def test_memory_adds_up_to_the_active_bytes_with_a_small_residual(tables):
    for row in tables["runs"]:
        parts = row["weights_bytes"] + row["expert_pool_bytes"] + row["mtp_head_bytes"]
        assert row["staging_bytes"] <= 16 * 23040
        assert parts + row["unattributed_bytes"] == row["active_bytes"]
        assert row["expert_pool_bytes"] == 8 * 20 * 23040
        assert abs(row["unattributed_bytes"]) < 0.15 * row["active_bytes"]


def test_the_trace_and_the_unions_agree(tables):
    greedy = _of(tables["trace"], prompt_id="code", path="greedy", phase="decode")
    tokens = len(_of(tables["tokens"], prompt_id="code", path="greedy"))
    assert len(greedy) == 8 * (tokens - 1)
    assert all(len(set(row["experts"])) == 4 for row in greedy)
    for layer in _of(tables["layers"], prompt_id="code", path="speculative", forward_width=3):
        rows = _of(tables["trace"], prompt_id="code", path="speculative", phase="verify", layer=layer["layer"])
        unions: dict[int, set[int]] = {}
        for row in rows:
            unions.setdefault(row["forward_index"], set()).update(row["experts"])
        assert layer["union_max"] == max(map(len, unions.values())) <= 12
        assert layer["num_routed"] == sum(map(len, unions.values()))


def test_a_timeline_leaves_events_of_both_paths_and_changes_no_other_row(tables, cache_directory):
    task = replace(TASK, prompts=TASK.prompts[:1], protocol=replace(TASK.protocol, timeline=True))
    found = {name: table.to_pylist() for name, table in run_task(task, LABELS, cache_directory).items()}
    for name, rows in found.items():
        if name != "events":
            assert len(rows) == len(_of(tables[name], prompt_id="code")), name
    for name, columns in {
        "repeats": ("path", "num_tokens", "prefill", "decode", "verify", "sequence_index"),
        "tokens": ("path", "token_id"),
        "trace": ("path", "forward_index", "layer", "experts"),
    }.items():
        assert _counts(found[name], columns) == _counts(_of(tables[name], prompt_id="code"), columns)
    assert {row["path"] for row in found["events"]} == {"greedy", "speculative"}
    assert {"read", "prefetch"} <= {row["name"] for row in found["events"]}
    assert all(row["bytes"] > 0 for row in found["events"] if row["name"] in ("read", "prefetch"))
    for repeat in _of(found["repeats"], instrumented=False, repeat_index=0):
        forwards = _of(found["events"], path=repeat["path"], name="forward")
        assert len(forwards) == 1 + (repeat["num_steps"] or repeat["num_tokens"] - 1)
        assert [row["forward_index"] for row in forwards] == list(range(len(forwards)))
        assert forwards[0]["start_s"] > 0
        assert forwards[0]["phase"] == "prefill"


def _counts(rows, columns):
    """The columns without what depends on time: seconds, and whether a read ahead arrived."""
    return [
        {
            column: {key: row[column][key] for key in ("num_forwards", "num_routed", "num_layers_fallback")}
            if isinstance(row[column], dict)
            else row[column]
            for column in columns
        }
        for row in rows
    ]


def test_replays_are_counted_and_timed(cache_directory):
    task = replace(TASK, prompts=TASK.prompts[:1], rollback="replay")
    rows = run_task(task, LABELS, cache_directory)["repeats"].to_pylist()
    speculative = _of(rows, path="speculative")
    assert all(row["num_replays"] > 0 for row in speculative)
    for row in speculative:
        assert row["num_direct_commits"] + row["num_replays"] == row["num_steps"] - 1
        assert row["decode"]["num_forwards"] == row["num_replays"]
    assert _of(speculative, instrumented=True)[0]["replay_s"] > 0


def test_pinning_keeps_the_hottest_experts_for_the_speculative_block_only(cache_directory):
    protocol = Protocol(max_tokens=16, repeats=1, order="blocks", pin_hot_experts=5, pin_calibration_tokens=12)
    task = replace(TASK, prompts=TASK.prompts[:1], protocol=protocol)
    tables = run_task(task, LABELS, cache_directory)
    run = tables["runs"].to_pylist()[0]
    assert run["num_pinned_experts"] == 5 * 8
    assert run["exactness"] == "identical"


def test_a_pin_that_leaves_too_little_is_refused_before_loading(cache_directory):
    protocol = Protocol(order="blocks", pin_hot_experts=9)
    with pytest.raises(TaskError, match="pin_hot_experts 9 leaves 11 of 20 slots, a verify forward needs 12; pin 8 or"):
        run_task(replace(TASK, protocol=protocol), LABELS, cache_directory)


def test_a_pool_below_the_floor_is_refused_with_the_number(cache_directory):
    with pytest.raises(TaskError, match="slots_per_layer is 11, below the floor of 12"):
        run_task(replace(TASK, slots_per_layer=11), LABELS, cache_directory)


def test_a_prompt_longer_than_the_context_is_refused_with_the_arithmetic(cache_directory):
    long = Prompt(id="long", category="x", text="word " * 5000, chat=False)
    with pytest.raises(
        TaskError, match=r"prompt 'long' has \d+ tokens and with 20 more needs a context of \d+; demo has 4096"
    ):
        run_task(replace(TASK, prompts=(long,)), LABELS, cache_directory)


def test_an_overwritten_slot_is_found_by_the_byte_oracle(make_target, make_head, demo):
    from types import SimpleNamespace

    from worker.benchmark.checks import byte_oracle
    from worker.measure.host import host_bytes

    target = make_target(64)
    session = SimpleNamespace(target=target, manifest=demo.manifest)
    assert byte_oracle(session, seed=0).num_failed == 0  # type: ignore[arg-type]
    pool = target.pools[3]
    array = pool.slots.arrays["up_proj.weight"]
    host_bytes(array)[10 * array.nbytes // 64] ^= 1
    found = byte_oracle(session, seed=0)  # type: ignore[arg-type]
    assert (found.num_run, found.num_failed, found.detail) == (512, 1, "layer 3 expert 10 slot 10")
    mx.eval(array)


def test_a_checkpoint_that_changed_after_it_was_verified_is_refused(cache_directory, demo, tmp_path):
    import shutil

    copy = shutil.copytree(demo.directory, tmp_path / "copy")
    path = copy / "experts/layer_004.bin"
    with path.open("r+b") as handle:
        handle.seek(3 * demo.manifest.record.record_bytes)
        handle.write(b"\xff\xff\xff\xff")
    task = replace(TASK, checkpoint=CheckpointRef(source=str(copy)))
    with pytest.raises(CheckpointError, match=r"layer 4 expert 3 has digest \w+, the manifest says \w+"):
        run_task(task, LABELS, cache_directory)
