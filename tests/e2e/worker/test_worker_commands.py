"""The worker's commands: the same benchmark without Ray, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import psutil
import pytest

from worker.checkpoint.resolve import BUNDLED_DIRECTORY
from worker.cli.files import check_writable
from worker.cli.main import _byte_count
from worker.contract.condition import PresentCondition, condition_from_json
from worker.contract.errors import TaskError
from worker.contract.outcome import Completed, Failed
from worker.contract.schema import SCHEMAS
from worker.contract.spool import Progress, read_outcome, read_tables
from worker.contract.task import CheckpointRef, Protocol

from .conftest import WORKER

pytestmark = pytest.mark.e2e


def _one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The error line; fails when there is a trace or more than one error."""
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    return errors[0]


def test_bench_prints_the_row_and_both_sequences(worker, cache_directory):
    result = worker(
        "bench", "--verify-width", 2, "--slots", 16, "--max-tokens", 8, "--repeats", 1, "--raw",
        "--prompt", "def median(values):", "--json", "-", "--cache", cache_directory,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert row["exactness"] == "identical"
    assert (row["verify_width"], row["slots_per_layer"], row["checkpoint"]) == (2, 16, "demo")
    assert len(row["greedy_token_ids"]) == 8
    assert row["greedy_token_ids"] == row["speculative_token_ids"]
    assert row["prompt"] == "def median(values):"
    assert set(row["greedy_decode_tok_s"]) == {"median", "low", "high", "n"}
    assert row["greedy_decode_tok_s"]["median"] > 0


def test_bench_under_a_memory_budget_prints_the_slots_that_fitted(worker, cache_directory):
    result = worker(
        "bench", "--memory-budget", "14MiB", "--eviction", "lfu", "--max-tokens", 8, "--repeats", 1, "--raw",
        "--prompt", "def median(values):", "--json", "-", "--cache", cache_directory,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert (row["memory_budget_bytes"], row["slots_per_layer"], row["settings"]["eviction"]) == (
        14 * 2**20,
        None,
        "lfu",
    )
    assert len(row["slots_by_layer"]) == 8
    assert sum(row["slots_by_layer"]) == row["num_pool_slots"]
    assert row["greedy_token_ids"] == row["speculative_token_ids"]
    assert 0 < row["greedy_hits_of_optimal_ratio"] <= 1


def test_bench_drafts_by_the_policy_it_is_given(worker, cache_directory):
    result = worker(
        "bench", "--draft-policy", "gated", "--draft-confidence", 0.9, "--max-tokens", 12, "--repeats", 1, "--raw",
        "--prompt", "def median(values):", "--json", "-", "--cache", cache_directory,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert (row["settings"]["draft_policy"], row["settings"]["draft_confidence"]) == ("gated", 0.9)
    assert row["greedy_token_ids"] == row["speculative_token_ids"]
    assert len(row["verify_cost_s"]) == 5
    assert row["predicted_speedup"] > 0
    assert "costs" in result.stderr


def test_bench_writes_a_timeline_that_perfetto_opens(worker, tmp_path, cache_directory):
    out = tmp_path / "trace.json"
    result = worker(
        "bench", "--verify-width", 2, "--slots", 16, "--max-tokens", 6, "--repeats", 1, "--raw", "--cache-limit", 0,
        "--prompt", "def median(values):", "--json", "-", "--trace-out", out, "--cache", cache_directory,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert row["greedy_token_ids"] == row["speculative_token_ids"]
    assert row["settings"]["cache_limit_bytes"] == 0
    trace = json.loads(out.read_text())
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names >= {"greedy (bench)", "speculative (bench)", "MainThread"}
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {span["name"] for span in spans} >= {"forward", "layer", "route_wait", "read_wait"}
    assert sum(span["name"] == "forward" and span["pid"] == 1 for span in spans) == 1 + (6 - 1)
    assert all(span["ts"] >= 0 and span["dur"] >= 0 and span["tid"] > 0 for span in spans)


@pytest.mark.parametrize("flag", ["--trace-out", "--json"])
@pytest.mark.parametrize("place", ["missing/file.json", "."])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_measured(
    worker, tmp_path, cache_directory, flag, place
):
    result = worker("bench", flag, tmp_path / place, "--cache", cache_directory)
    assert result.returncode == 1
    assert f"cannot write {tmp_path / place}" in _one_line(result)
    assert "%" not in result.stderr
    assert result.stdout == ""


def test_proving_a_file_writable_leaves_it_as_it_was(tmp_path):
    kept, absent = tmp_path / "kept", tmp_path / "absent"
    kept.write_text("text")
    check_writable(kept)
    check_writable(absent)
    assert kept.read_text() == "text"
    assert not absent.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8GiB", 2**33),
        ("1.5 MiB", 3 * 2**19),
        ("900MB", 900_000_000),
        ("2TB", 2 * 10**12),
        ("12kB", 12_000),
        ("77", 77),
    ],
)
def test_a_number_of_bytes_is_read_with_its_unit(text, expected):
    assert _byte_count(text) == expected


def test_only_a_cache_limit_may_be_nothing():
    assert _byte_count("0", "--cache-limit", least=0) == 0
    for text in ("0", "0.4B", "0 GiB"):
        with pytest.raises(TaskError, match=r"--memory-budget is .*, expected a number with a unit"):
            _byte_count(text)


def test_run_leaves_a_complete_spool(worker, task_file, tmp_path, cache_directory):
    spool = tmp_path / "spool"
    result = worker(
        "run", task_file, "--spool", spool, "--study-id", "s", "--attempt-id", "7", "--cache", cache_directory
    )
    assert result.returncode == 0, result.stderr
    outcome = read_outcome(spool)
    assert isinstance(outcome, Completed)
    tables = read_tables(spool)
    assert {name: table.num_rows for name, table in tables.items()} == outcome.tables
    assert set(tables) == set(SCHEMAS)
    assert tables["runs"].column("attempt_id").to_pylist() == ["7"]
    lines = [Progress.from_json(line) for line in (spool / "progress.jsonl").read_text().splitlines()]
    assert lines[-1].phase == "done"


def test_prepare_verify_and_bench_on_the_prepared_directory(worker, tmp_path, cache_directory):
    out = tmp_path / "prepared"
    made = worker("prepare", BUNDLED_DIRECTORY, "--out", out, "--cache", tmp_path / "c", lock=False)
    assert made.returncode == 0, made.stderr
    assert "8 layers x 64 experts, float32" in made.stdout
    checked = worker("verify", out, "--cache", tmp_path / "c", lock=False)
    assert "512 expert records and" in checked.stdout
    path = out / "experts/layer_006.bin"
    with path.open("r+b") as handle:
        handle.seek(40 * 32768 + 5)
        handle.write(b"\xa5\x5a")
    broken = worker("verify", out, "--cache", tmp_path / "c", lock=False)
    assert broken.returncode == 1
    assert "layer 6 expert 40 has digest" in _one_line(broken)
    refused = worker("bench", "--checkpoint", out, "--max-tokens", 4, "--cache", tmp_path / "c")
    assert refused.returncode == 1
    assert "layer 6 expert 40 has digest" in _one_line(refused)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bench", "--checkpoint", "/nowhere"], 1, "checkpoint /nowhere does not exist; name a directory, or 'demo'"),
        (["bench", "--slots", "5"], 2, "slots_per_layer is 5, below the floor of 12"),
        (["bench", "--slots", "65"], 2, "slots_per_layer is 65, the checkpoint has 64 experts per layer"),
        (
            ["bench", "--memory-budget", "4MiB"],
            2,
            "memory_budget_bytes is 4194304, but weights 2338624 + head 1684952 +",
        ),
        (["bench", "--memory-budget", "8 gigs"], 2, "--memory-budget is '8 gigs', expected a number with a unit: 8GiB"),
        (["bench", "--cache-limit", "some"], 2, "--cache-limit is 'some', expected a number with a unit: 8GiB"),
        (["bench", "--memory-budget", "1GiB", "--slots", "16"], 2, "slots_per_layer and memory_budget_bytes are both"),
        (["bench", "--eviction", "belady"], 2, "eviction is 'belady', expected one of lru, lfu, lfuda, s3-fifo"),
        (["bench", "--draft-policy", "some"], 2, "draft_policy is 'some', expected one of fixed, gated, off"),
        (["bench", "--draft-confidence", "1.5"], 2, "draft_confidence is 1.5, expected a number from 0 to 1"),
        (["bench", "--verify-width", "6"], 2, "verify_width is 6, expected a whole number, 1 to 5"),
        (["bench", "--order", "random"], 2, "order is 'random', expected one of abba, blocks"),
        (["bench", "--prompt", "word " * 4100, "--raw"], 2, "tokens and with 96 more needs a context of"),
        (["bench", "--prompt", "", "--raw"], 2, "prompt 'bench' has no tokens"),
        (["bench", "--spool", "/proc/nowhere"], 1, "cannot write to /proc/nowhere"),
        (["anchor", "--slots", "many"], 2, "--slots has 'many', expected whole numbers or 'all'"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(worker, cache_directory, arguments, code: int, message: str):
    result = worker(*arguments, "--cache", cache_directory)
    assert result.returncode == code, result.stderr
    assert message in _one_line(result)
    assert result.stdout == ""


def test_a_truncated_checkpoint_is_named(worker, tmp_path):
    copy = Path(shutil.copytree(BUNDLED_DIRECTORY, tmp_path / "copy"))
    os.truncate(copy / "model.safetensors", 6_000_000)
    result = worker("prepare", copy, "--out", tmp_path / "out", "--cache", tmp_path / "c", lock=False)
    assert result.returncode == 1
    assert "model.safetensors is truncated" in _one_line(result)
    assert not (tmp_path / "out").exists()


def test_a_cache_that_cannot_be_written_is_named(worker, tmp_path):
    (tmp_path / "file").write_text("")
    result = worker("bench", "--cache", tmp_path / "file" / "cache")
    assert result.returncode == 1
    assert "cannot write to the cache" in _one_line(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the task is not JSON"),
        ('{"task_version": 3, "checkpoint": {"source": "demo"}, "prompts": [], "wdith": 3}', "unknown key 'wdith'"),
    ],
)
def test_a_task_file_that_is_no_task_is_wrong_use(worker, tmp_path, text: str, message: str):
    (tmp_path / "task.json").write_text(text)
    result = worker("run", tmp_path / "task.json", "--spool", tmp_path / "spool")
    assert result.returncode == 2
    assert message in _one_line(result)
    assert not (tmp_path / "spool").exists()


def test_a_failed_run_says_why_in_its_outcome(worker, task, tmp_path, cache_directory):
    (tmp_path / "task.json").write_text(replace(task, checkpoint=CheckpointRef(source="/nowhere")).to_json())
    result = worker("run", tmp_path / "task.json", "--spool", tmp_path / "spool", "--cache", cache_directory)
    assert result.returncode == 1
    outcome = read_outcome(tmp_path / "spool")
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.error) == ("permanent", "CheckpointError")
    assert read_tables(tmp_path / "spool") == {}


def _start_long(task, tmp_path: Path, cache_directory: Path, *extra: str, launcher: tuple[str, ...] = ()):
    """Start a run that would take minutes and wait until it measures."""
    long = replace(task, protocol=Protocol(max_tokens=2000, repeats=3, stop_at_eos=False))
    (tmp_path / "task.json").write_text(long.to_json())
    spool = tmp_path / "spool"
    command = [
        *launcher, *WORKER, "run", str(tmp_path / "task.json"), "--spool", str(spool), "--cache", str(cache_directory),
        "--lock", str(tmp_path / "lock"), *extra,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    progress = spool / "progress.jsonl"
    while not (progress.exists() and "warmup" in progress.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    return process, spool


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_at_once_and_leaves_an_outcome(task, tmp_path, cache_directory, number):
    process, spool = _start_long(task, tmp_path, cache_directory)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"error: stopped by {number.name}" in stderr.decode()
    outcome = read_outcome(spool)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "lost"
    assert read_tables(spool) == {}


def test_a_second_benchmark_on_the_machine_is_refused(task, task_file, worker, tmp_path, cache_directory):
    process, _ = _start_long(task, tmp_path, cache_directory)
    result = worker("run", tmp_path / "task.json", "--spool", tmp_path / "other", "--cache", cache_directory)
    assert result.returncode == 1
    assert f"process {process.pid} is running a benchmark on this machine" in _one_line(result)
    outcome = read_outcome(tmp_path / "other")
    assert isinstance(outcome, Failed)
    assert outcome.kind == "transient"
    process.terminate()
    process.communicate(timeout=20)


def test_a_run_ends_when_its_supervisor_is_gone(task, tmp_path, cache_directory):
    launcher = (
        sys.executable,
        "-c",
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([*sys.argv[1:], '--parent-pid', str(os.getpid())], start_new_session=True)\n"
        "open(sys.argv[sys.argv.index('--lock') + 1] + '.child', 'w').write(str(child.pid))\n"
        "child.wait()",
    )
    supervisor, spool = _start_long(task, tmp_path, cache_directory, launcher=launcher)
    child = psutil.Process(int((tmp_path / "lock.child").read_text()))
    supervisor.kill()
    supervisor.communicate(timeout=20)
    gone, _ = psutil.wait_procs([child], timeout=20)
    assert gone
    outcome = read_outcome(spool)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "lost"


def test_condition_prints_what_the_machine_says(worker):
    result = worker("condition", lock=False)
    assert result.returncode == 0, result.stderr
    found = condition_from_json(result.stdout)
    assert found.load_average is not None
    assert set(json.loads(result.stdout)) == {field.name for field in fields(PresentCondition)}


def test_reads_compares_demanded_reads_with_the_same_threads_alone(worker, cache_directory):
    result = worker("reads", "--threads", 2, "--rounds", 2, "--tokens", 4, "--cache", cache_directory)
    assert result.returncode == 0, result.stderr
    first, waits, *rates = result.stdout.splitlines()
    assert first == "2 rounds of 4 forced ids, 2 threads, page cache: bypass"
    assert float(waits.split()[0]) >= 1
    assert [line.split("  ")[0] for line in rates] == [
        "alone",
        "demanded, while any read was outstanding",
        "demanded, while the forward waited",
    ]
    assert all("GB/s" in line for line in rates)
    refused = worker("reads", "--page-cache", "some", "--cache", cache_directory)
    assert (refused.returncode, _one_line(refused)) == (2, "error: --page-cache is 'some', expected bypass or use")


def test_anchor_and_engine_print_a_line_per_arm_and_the_same_tokens(worker, cache_directory):
    anchor = worker("anchor", "--slots", "all,16", "--rounds", 1, "--max-tokens", 6, "--cache", cache_directory)
    assert anchor.returncode == 0, anchor.stderr
    arms = anchor.stdout.splitlines()[2:]
    assert [line.split()[-1] for line in arms] == ["same"] * 3
    chosen = worker("engine", "--hit-ratios", "0.8,2", "--rounds", 1, "--tokens", 6, "--cache", cache_directory)
    assert "--hit-ratios has '2', expected numbers from 0 to 1" in _one_line(chosen)
    chosen = worker("engine", "--hit-ratios", "1,0.8", "--rounds", 1, "--tokens", 6, "--cache", cache_directory)
    assert chosen.returncode == 0, chosen.stderr
    slots = [int(line.split()[0]) for line in chosen.stdout.splitlines()[3:]]
    assert 64 >= slots[0] > slots[1] >= 4
    engine = worker("engine", "--slots", "all,16", "--rounds", 1, "--tokens", 6, "--widths", "--cache", cache_directory)
    assert engine.returncode == 0, engine.stderr
    lines = engine.stdout.splitlines()
    assert [line.split()[-1] for line in lines[2:5]] == ["same"] * 3
    names = [*(f"forward of {width}" for width in range(1, 6)), "rollback by one token of 3"]
    assert [line.split(":")[0] for line in lines[5:]] == names
