"""A memory budget becomes as many slots as fit, the run stays inside it, and too small a budget is refused in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import CODE
from worker.benchmark import session as session_module
from worker.benchmark.run import RunLabels, run_task
from worker.benchmark.session import open_session
from worker.contract.errors import TaskError
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task
from worker.measure.memory import settled_active_bytes
from worker.model.footprint import footprint

LABELS = RunLabels(study_id="s", attempt_id="a", node="n")
MIB = 2**20
TASK = Task(
    checkpoint=CheckpointRef(source="demo"),
    prompts=(
        Prompt(id="code", category="code", text=CODE, chat=False),
        Prompt(id="chat", category="chat", text="What is a queue?"),
    ),
    verify_width=3,
    memory_budget_bytes=14 * MIB,
    protocol=Protocol(max_tokens=16, repeats=1, warmup_tokens=0, rewarm_tokens=0),
)
SLOT_BYTES = 23040


def _sizes(demo, **changed):
    return footprint(
        demo.directory,
        demo.manifest,
        **({"verify_width": 3, "prefill_chunk_tokens": 64, "context_tokens": 100} | changed),
    )


def test_weights_and_head_are_told_exactly_from_the_files(demo, make_target, make_head):
    target = make_target(12)
    sizes = _sizes(demo)
    assert (sizes.weights_bytes, sizes.head_bytes) == (target.weights_bytes, make_head(target).nbytes)
    assert sizes.slot_bytes == SLOT_BYTES
    assert target.expert_pool_bytes == 12 * 8 * SLOT_BYTES


@pytest.mark.parametrize("setting", ["verify_width", "prefill_chunk_tokens", "context_tokens"])
def test_a_larger_setting_needs_more_working_memory(demo, setting):
    small = _sizes(demo).working_bytes
    assert _sizes(demo, **{setting: 5 if setting == "verify_width" else 128}).working_bytes >= small
    assert _sizes(demo, verify_width=5, prefill_chunk_tokens=128, context_tokens=500).working_bytes > small


@pytest.mark.parametrize(("budget", "allocation"), [(14 * MIB, "uniform"), (14 * MIB, "trace"), (30 * MIB, "auto")])
def test_the_run_uses_the_budget_and_stays_inside(cache_directory, demo, budget, allocation):
    task = replace(TASK, memory_budget_bytes=budget, allocation=allocation)
    others = settled_active_bytes()  # what other tests of this process keep loaded
    tables = run_task(task, LABELS, cache_directory)
    for run in tables["runs"].to_pylist():
        slots = run["slots_by_layer"]
        assert (run["memory_budget_bytes"], run["slots_per_layer"]) == (budget, None)
        assert run["allocation"] == ("uniform" if allocation == "uniform" else "trace")
        assert sum(slots) == run["num_pool_slots"]
        assert run["expert_pool_bytes"] == sum(slots) * SLOT_BYTES
        assert all(12 <= count <= 64 for count in slots)
        assert run["exactness"] == "identical"
        assert run["allocate_s"] > 0
        if allocation == "uniform":
            assert max(slots) - min(slots) <= 1
        elif budget < 20 * MIB:
            assert max(slots) - min(slots) > 1
        longest = max(r["num_prompt_tokens"] for r in tables["runs"].to_pylist()) + 18
        exact = _sizes(demo, context_tokens=longest)
        room = budget - exact.without_slots_bytes - run["expert_pool_bytes"]
        assert sum(slots) == 8 * 64 or 0 <= room < SLOT_BYTES
    assert all(repeat["peak_bytes"] - others <= budget for repeat in tables["repeats"].to_pylist())
    assert all(check["num_failed"] == 0 < check["num_run"] for check in tables["checks"].to_pylist())


@pytest.mark.parametrize(("chunk", "num_words", "width"), [(16, 20, 5), (256, 160, 1), (64, 200, 4)])
def test_the_smallest_budget_runs_at_the_floor_and_its_peak_stays_inside(
    cache_directory, demo, tokenizer, chunk, num_words, width
):
    text = "a word or two " * (num_words // 4)
    sizes = _sizes(
        demo,
        verify_width=width,
        prefill_chunk_tokens=chunk,
        context_tokens=len(tokenizer.encode(text)) + 8 + width - 1,
    )
    budget = sizes.without_slots_bytes + 4 * width * 8 * SLOT_BYTES
    task = replace(
        TASK,
        prompts=(Prompt(id="long", category="prose", text=text, chat=False),),
        prefill_chunk_tokens=chunk,
        verify_width=width,
        memory_budget_bytes=budget,
        protocol=Protocol(max_tokens=8, repeats=1, warmup_tokens=0, rewarm_tokens=0),
    )
    others = settled_active_bytes()
    tables = run_task(task, LABELS, cache_directory)
    run = tables["runs"].to_pylist()[0]
    assert (run["slots_by_layer"], run["exactness"]) == ([4 * width] * 8, "identical")
    assert all(repeat["peak_bytes"] - others <= budget for repeat in tables["repeats"].to_pylist())
    with pytest.raises(TaskError, match=f"memory_budget_bytes is {budget - 1}, but .* = {budget} bytes"):
        run_task(replace(task, memory_budget_bytes=budget - 1), LABELS, cache_directory)


def test_a_budget_below_the_floor_is_refused_before_loading_with_the_arithmetic(cache_directory, demo, monkeypatch):
    monkeypatch.setattr(session_module, "check_sizes", lambda *_: pytest.fail("it went on to the files"))
    sizes = _sizes(demo, context_tokens=18)
    least = sizes.without_slots_bytes + 12 * 8 * SLOT_BYTES
    with pytest.raises(
        TaskError,
        match=rf"memory_budget_bytes is {least - 1}, but weights {sizes.weights_bytes} \+ head {sizes.head_bytes} \+ "
        rf"working memory {sizes.working_bytes} \+ floor pool {12 * 8 * SLOT_BYTES} \(12 slots x 8 layers x 23040\) = "
        rf"{least} bytes; set memory_budget_bytes to {least} or more",
    ):
        run_task(replace(TASK, memory_budget_bytes=least - 1), LABELS, cache_directory)


def test_pinned_experts_raise_the_floor(cache_directory):
    protocol = replace(TASK.protocol, order="blocks", pin_hot_experts=8)
    with pytest.raises(TaskError, match=r"\(20 slots x 8 layers x 23040\)"):
        run_task(replace(TASK, memory_budget_bytes=MIB, protocol=protocol), LABELS, cache_directory)


def test_a_budget_for_everything_is_a_resident_model(cache_directory):
    session = open_session(replace(TASK, memory_budget_bytes=100 * MIB), cache_directory)
    assert session.slots_by_layer == (64,) * 8
    assert session.target.is_resident
    session.close()


def test_the_same_task_gets_the_same_slots_again(cache_directory):
    found = []
    for _ in range(2):
        session = open_session(TASK, cache_directory)
        found.append(session.slots_by_layer)
        session.close()
    assert found[0] == found[1]
    assert len(set(found[0])) > 1
