"""A run keeps to its limit on freed buffers, says which it was, and leaves the process as it found it."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest

from tests.conftest import CODE
from worker.benchmark.capacity import sizes_of
from worker.benchmark.run import RunLabels, run_task
from worker.benchmark.session import open_session
from worker.contract.errors import TaskError
from worker.contract.task import CheckpointRef, Prompt, Protocol, Task

LABELS = RunLabels(study_id="s", attempt_id="a", node="n")
MIB = 2**20
TASK = Task(
    checkpoint=CheckpointRef(source="demo"),
    prompts=(Prompt(id="code", category="code", text=CODE, chat=False),),
    verify_width=3,
    slots_per_layer=12,
    protocol=Protocol(max_tokens=12, repeats=1, warmup_tokens=0, rewarm_tokens=0),
)
"""At the floor: verify width 3 times 4 experts per token."""


def _current_limit() -> int:
    limit = mx.set_cache_limit(0)
    mx.set_cache_limit(limit)
    return limit


@pytest.fixture(scope="module")
def by_limit(cache_directory):
    return {
        limit: run_task(replace(TASK, cache_limit_bytes=limit), LABELS, cache_directory) for limit in (None, MIB, 0)
    }


@pytest.mark.parametrize(("limit", "stored"), [(None, 64 * MIB), (MIB, MIB), (0, 0)])
def test_freed_buffers_keep_to_the_limit_that_is_stored(by_limit, limit, stored):
    (run,) = by_limit[limit]["runs"].to_pylist()
    assert (run["cache_limit_bytes"], run["mlx_wired_limit_bytes"]) == (stored, None)
    assert all(repeat["cache_bytes"] <= stored for repeat in by_limit[limit]["repeats"].to_pylist())
    assert any(repeat["cache_bytes"] > MIB for repeat in by_limit[None]["repeats"].to_pylist())


def test_the_limit_changes_no_token_and_the_floor_is_enough(by_limit):
    assert {tables["runs"].to_pylist()[0]["exactness"] for tables in by_limit.values()} == {"identical"}
    assert len({tuple(tables["tokens"]["token_id"].to_pylist()) for tables in by_limit.values()}) == 1


def test_both_peaks_hold_what_is_loaded_and_the_larger_is_the_peak(by_limit):
    for tables in by_limit.values():
        (run,) = tables["runs"].to_pylist()
        loaded = run["weights_bytes"] + run["expert_pool_bytes"] + run["mtp_head_bytes"]
        for repeat in tables["repeats"].to_pylist():
            peaks = repeat["prefill_peak_bytes"], repeat["generation_peak_bytes"]
            assert repeat["peak_bytes"] == max(peaks)
            assert min(peaks) >= loaded
            assert repeat["generation_peak_bytes"] >= repeat["active_bytes"]


def test_a_long_prompt_s_peak_is_the_prefill_s(cache_directory):
    text = "a word or two " * 25
    task = replace(
        TASK, prompts=(Prompt(id="long", category="prose", text=text, chat=False),), prefill_chunk_tokens=512
    )
    for repeat in run_task(task, LABELS, cache_directory)["repeats"].to_pylist():
        assert repeat["prefill_peak_bytes"] > repeat["generation_peak_bytes"] + MIB // 2


def test_an_open_session_sets_the_limit_and_a_closed_one_puts_it_back(cache_directory):
    before = _current_limit()
    session = open_session(replace(TASK, cache_limit_bytes=3 * MIB), cache_directory)
    assert _current_limit() == 3 * MIB
    session.close()
    assert _current_limit() == before


def test_the_default_is_the_working_memory_of_the_longest_generation(cache_directory, demo):
    prompts = (*TASK.prompts, Prompt(id="long", category="prose", text="a word " * 1500, chat=False))
    task = replace(TASK, prompts=prompts, prefill_chunk_tokens=4096)
    session = open_session(task, cache_directory)
    longest = max(len(prompt.token_ids) for prompt in session.prompts) + 12 + 2
    sizes = sizes_of(task, demo.directory, demo.manifest, longest)
    assert session.limits.cache_bytes == sizes.working_bytes > 64 * MIB
    session.close()


def test_a_session_that_does_not_open_puts_the_limit_back(cache_directory):
    before = _current_limit()
    with pytest.raises(TaskError, match="read_path is 'copied', but there is no NVIDIA GPU here"):
        open_session(replace(TASK, cache_limit_bytes=3 * MIB, read_path="copied"), cache_directory)
    assert _current_limit() == before
