from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.contract import errors
from worker.contract.build import build_hash
from worker.contract.errors import CheckpointError, MachineBusyError, TaskError, WorkerError
from worker.contract.outcome import Completed, Failed, outcome_from_dict
from worker.contract.spool import Progress, read_outcome
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task

ERRORS = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, WorkerError)]
PLAIN = Task(checkpoint=CheckpointRef(source="demo"), prompts=(Prompt(id="a", category="prose", text="Hello"),))
FULL = Task(
    checkpoint=CheckpointRef(source="/models/next", mtp="/models/mtp.safetensors", digest="c" * 32),
    prompts=(
        Prompt(id="zh", category="qa", text="用三句话解释什么是混合专家模型。"),
        Prompt(id="raw", category="code", text='def f(x):\n\t"\\u0000"', chat=False),
    ),
    verify_width=5,
    slots_per_layer=40,
    verify_mode="stepwise",
    rollback="replay",
    eviction="s3-fifo",
    allocation="uniform",
    compute_dtype="bfloat16",
    prefill_chunk_tokens=7,
    group_limit=4,
    draft_policy="gated",
    draft_confidence=0.5,
    reader_threads=3,
    queue_depth=5,
    read_path="staged",
    page_cache="bypass",
    prefetch="on",
    prefetch_ranks=3,
    keep_warm="off",
    cache_limit_bytes=0,
    verify_records="always",
    protocol=Protocol(max_tokens=17, repeats=2, warmup_tokens=0, order="blocks", pin_hot_experts=4, stop_at_eos=False),
)

GOLDEN_IDS = {"plain": (PLAIN, "61454775154eb934"), "full": (FULL, "8c0351f54acaef4b")}


@pytest.mark.parametrize("task", [PLAIN, FULL], ids=["plain", "full"])
def test_a_task_survives_json_with_its_id(task: Task) -> None:
    again = Task.from_json(task.to_json())
    assert again == task
    assert again.id == task.id


@pytest.mark.parametrize("name", GOLDEN_IDS)
def test_a_task_s_id_is_as_recorded(name: str) -> None:
    """Another id for the same task would run every finished study again: raise TASK_VERSION if that is meant."""
    task, golden = GOLDEN_IDS[name]
    assert task.id == golden


def test_every_setting_is_part_of_the_id() -> None:
    changed: list[Task] = [
        dataclasses.replace(PLAIN, checkpoint=dataclasses.replace(PLAIN.checkpoint, **{name: "other"}))
        for name in ("source", "mtp", "digest")
    ]
    changed += [
        dataclasses.replace(PLAIN, prompts=(dataclasses.replace(PLAIN.prompts[0], **change),))
        for change in ({"id": "b"}, {"category": "code"}, {"text": "Hello "}, {"chat": False})
    ]
    changed += [
        dataclasses.replace(PLAIN, **{field.name: getattr(FULL, field.name)})
        for field in dataclasses.fields(Task)
        if getattr(FULL, field.name) != getattr(PLAIN, field.name)
    ]
    changed.append(dataclasses.replace(PLAIN, memory_budget_bytes=2**33))
    changed += [
        dataclasses.replace(PLAIN, protocol=dataclasses.replace(PLAIN.protocol, **{name: value}))
        for name, value in {
            "max_tokens": 95,
            "repeats": 4,
            "warmup_tokens": 1,
            "rewarm_tokens": 15,
            "order": "blocks",
            "instrumented_repeats": 2,
            "pin_calibration_tokens": 31,
            "stop_at_eos": False,
            "timeline": True,
        }.items()
    ]
    ids = [task.id for task in changed]
    assert PLAIN.id not in ids
    assert len(set(ids)) == len(ids)


def with_value(path: tuple[str | int, ...], value: Any) -> str:
    data = PLAIN.to_dict()
    place: Any = json.loads(json.dumps(data))
    root = place
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(root)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("slots",), "task has an unknown key 'slots'"),
        (("checkpoint", "path"), "checkpoint has an unknown key 'path'"),
        (("prompts", 0, "txt"), r"prompts\[0\] has an unknown key 'txt'"),
        (("protocol", "warmup"), "protocol has an unknown key 'warmup'"),
    ],
)
def test_an_unknown_key_is_refused_with_its_place_and_the_allowed_ones(path: tuple[str | int, ...], where: str) -> None:
    with pytest.raises(TaskError, match=rf"{where}; allowed: \w+"):
        Task.from_json(with_value(path, 1))


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("verify_width",), 6, "verify_width is 6, expected a whole number, 1 to 5"),
        (("verify_width",), True, "verify_width is True"),
        (("verify_width",), 2.0, "verify_width is 2.0"),
        (("slots_per_layer",), 0, "slots_per_layer is 0, expected a whole number, 1 or more"),
        (("memory_budget_bytes",), 0, "memory_budget_bytes is 0, expected a whole number, 1 or more"),
        (("allocation",), "even", "allocation is 'even', expected one of auto, uniform, trace"),
        (("allocation",), "trace", "allocation is 'trace' without a memory budget"),
        (("rollback",), "undo", "rollback is 'undo', expected one of capture, replay"),
        (("eviction",), "belady", "eviction is 'belady'"),
        (("protocol", "max_tokens"), 1, "max_tokens is 1"),
        (("protocol", "order"), "baab", "order is 'baab'"),
        (("protocol", "pin_hot_experts"), 1, "needs order 'blocks'"),
        (("prompts",), [], "no prompts"),
        (("checkpoint",), None, "checkpoint is NoneType, expected an object"),
        (("task_version",), 99, "task_version is 99"),
    ],
)
def test_a_value_out_of_range_is_refused_in_words(path: tuple[str | int, ...], value: Any, says: str) -> None:
    with pytest.raises(TaskError, match=says):
        Task.from_json(with_value(path, value))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"task_version": 2}'])
def test_what_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(TaskError):
        Task.from_json(text)


def test_slots_and_a_memory_budget_exclude_each_other() -> None:
    with pytest.raises(TaskError, match="slots_per_layer and memory_budget_bytes are both set; set one"):
        dataclasses.replace(PLAIN, slots_per_layer=20, memory_budget_bytes=2**33)
    assert PLAIN.resolved_allocation == "uniform"
    budget = dataclasses.replace(PLAIN, memory_budget_bytes=2**33)
    assert budget.resolved_allocation == "trace"
    assert dataclasses.replace(budget, eviction="lfu").resolved_allocation == "uniform"
    assert dataclasses.replace(budget, eviction="lfu", allocation="trace").resolved_allocation == "trace"


def test_two_prompts_of_one_id_are_refused() -> None:
    with pytest.raises(TaskError, match="two prompts are called 'a'"):
        dataclasses.replace(PLAIN, prompts=PLAIN.prompts * 2)


@pytest.mark.parametrize("cls", ERRORS)
def test_an_error_survives_pickling(cls: type[WorkerError]) -> None:
    again = pickle.loads(pickle.dumps(cls("layer 3, expert 17: the digest differs", "prepare it again")))
    assert type(again) is cls
    assert (again.message, again.hint, again.kind) == (
        "layer 3, expert 17: the digest differs",
        "prepare it again",
        cls.kind,
    )
    assert str(again) == "layer 3, expert 17: the digest differs; prepare it again"


def test_every_error_is_drawn_in_the_module_s_tree() -> None:
    assert errors.__doc__ is not None
    assert all(cls.__name__ in errors.__doc__ for cls in ERRORS)


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(tables={"runs": 3, "repeats": 24}),
        Failed.from_error(CheckpointError("missing", "prepare it")),
        Failed.from_error(MachineBusyError("busy")),
        Failed.from_error(KeyError("x")),
        Failed.from_error(ZeroDivisionError()),
    ],
)
def test_an_outcome_survives_json(outcome: Completed | Failed) -> None:
    assert outcome_from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_an_error_that_nobody_foresaw_is_permanent_and_has_a_message() -> None:
    failed = Failed.from_error(ZeroDivisionError())
    assert (failed.kind, failed.error, failed.message) == ("permanent", "ZeroDivisionError", "ZeroDivisionError")
    assert Failed.from_error(MachineBusyError("busy")).kind == "transient"


@pytest.mark.parametrize(
    "data", [{}, {"outcome": "maybe"}, {"outcome": "failed", "kind": "often", "error": "", "message": ""}]
)
def test_what_is_no_outcome_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        outcome_from_dict(data)


@given(
    st.builds(
        Progress,
        phase=st.sampled_from(["load", "greedy", "done"]),
        fraction=st.floats(0, 1),
        prompt_id=st.none() | st.text(),
        repeat=st.none() | st.integers(0, 9),
        repeats=st.none() | st.integers(0, 9),
        tok_s=st.none() | st.floats(0, 1e6),
        detail=st.text(),
        at_s=st.floats(0, 2e9),
    )
)
def test_progress_is_one_line_and_survives_it(progress: Progress) -> None:
    line = progress.to_json()
    assert "\n" not in line
    assert Progress.from_json(line) == progress


def test_the_build_is_named_by_sixteen_hex_digits() -> None:
    assert len(build_hash()) == 16
    assert int(build_hash(), 16) >= 0


def test_an_outcome_that_is_not_json_is_a_failure_with_its_place(tmp_path):
    (tmp_path / "outcome.json").write_text("{half")
    outcome = read_outcome(tmp_path)
    assert isinstance(outcome, Failed)
    assert str(tmp_path / "outcome.json") in outcome.message
