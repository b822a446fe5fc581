"""`worker`: the benchmark on this machine, without Ray.

    worker prepare SOURCE --out DIR     bring a checkpoint into the layout that experts stream from
    worker verify DIR                   compare a prepared checkpoint with its manifest
    worker run TASK.json --spool DIR    run one task, as the fleet does, and leave its tables in a spool
    worker probe                        print what this machine is
    worker bench                        describe a task by flags, run it, and print the report's row
    worker condition                    print as JSON what the machine is doing: power, heat, load, other models, users

stdout is the answer, stderr is progress. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.cli import anchors, checkpoints, conditions
from worker.cli.files import check_writable, write_text
from worker.cli.terminal import CacheOption, LockOption, say, stop_on_signals
from worker.contract.errors import InterruptedRunError, TaskError, WorkerError
from worker.contract.outcome import Failed
from worker.contract.spool import Progress, SpoolWriter
from worker.contract.task import BUNDLED_CHECKPOINT, CheckpointRef, Prompt, Protocol, Task

if TYPE_CHECKING:
    import pyarrow as pa

    from worker.benchmark.run import RunLabels

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benchmark a streamed MoE model on this machine.")
checkpoints.register(app)
anchors.register(app)
conditions.register(app)

DEFAULT_PROMPT = "用三句话解释什么是混合专家模型。"
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
_PARENT_POLL_S = 0.5
_GRACE_S = 5.0


@app.command()
def run(
    task: Annotated[Path, typer.Argument(help="A task as JSON.")],
    spool: Annotated[Path, typer.Option(help="The directory to leave progress, tables and outcome in.")],
    study_id: Annotated[str, typer.Option(help="Carried by every row.")] = "local",
    attempt_id: Annotated[str, typer.Option(help="Carried by every row.")] = "1",
    node: Annotated[str, typer.Option(help="This machine's name in the rows.")] = "",
    lock: LockOption = None,
    parent_pid: Annotated[int | None, typer.Option(help="End when this process is no longer the parent.")] = None,
    cache: CacheOption = None,
) -> None:
    """Run one task and leave its tables in a spool."""
    stop_on_signals()
    if parent_pid is not None:
        watch_parent(parent_pid)
    try:
        text = task.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"cannot read {task}: {error.strerror}", "name a task file") from error
    parsed = Task.from_json(text)
    writer = SpoolWriter(spool)
    try:
        tables = _measure(parsed, _labels(study_id, attempt_id, node), lock, cache, writer.progress)
        writer.complete(tables)
    except Exception as error:
        if not isinstance(error, WorkerError):
            traceback.print_exc()
        writer.finish(Failed.from_error(error))
        raise


@app.command()
def bench(
    checkpoint: Annotated[
        str, typer.Option(help="A prepared or MLX-format directory, or 'demo'.")
    ] = BUNDLED_CHECKPOINT,
    mtp: Annotated[
        str | None, typer.Option(help="The file with the mtp.* tensors of an MLX-format checkpoint.")
    ] = None,
    verify_width: Annotated[
        int, typer.Option(help="Tokens scored per verify forward: the pending one and the drafts.")
    ] = 3,
    slots: Annotated[int | None, typer.Option(help="Experts of each layer kept in memory. Default: all.")] = None,
    memory_budget: Annotated[
        str | None, typer.Option(help="Instead of --slots: memory for model and experts, such as 8GiB or 900MB.")
    ] = None,
    allocation: Annotated[
        str, typer.Option(help="How a budget is split over the layers: auto, trace or uniform.")
    ] = "auto",
    eviction: Annotated[str, typer.Option(help="lru, lfu, lfuda or s3-fifo.")] = "lru",
    max_tokens: Annotated[int, typer.Option(help="Tokens to emit per generation.")] = 96,
    repeats: Annotated[int, typer.Option(help="Measured generations of each path.")] = 3,
    warmup_tokens: Annotated[int | None, typer.Option(help="Default: as many as --max-tokens.")] = None,
    order: Annotated[str, typer.Option(help="abba or blocks.")] = "abba",
    verify_mode: Annotated[str, typer.Option(help="batched or stepwise.")] = "batched",
    rollback: Annotated[str, typer.Option(help="capture or replay.")] = "capture",
    draft_policy: Annotated[
        str, typer.Option(help="fixed: a full verify forward each time. gated: while the head is sure. off: no drafts.")
    ] = "fixed",
    draft_confidence: Annotated[
        float, typer.Option(help="gated: stop drafting once the drafts' probabilities, multiplied, fall below this.")
    ] = 0.3,
    pin_hot_experts: Annotated[int, typer.Option(help="Experts of each layer to pin after a calibration run.")] = 0,
    compute_dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    read_path: Annotated[str, typer.Option(help="auto, direct, copied or staged.")] = "auto",
    page_cache: Annotated[
        str, typer.Option(help="Whether reads use the system's page cache: auto, use, bypass.")
    ] = "auto",
    prefetch: Annotated[str, typer.Option(help="Read ahead of need: on, off, or auto, by a trial.")] = "auto",
    prefetch_ranks: Annotated[int, typer.Option(help="Predicted experts of a token to read ahead.")] = 6,
    keep_warm: Annotated[
        str, typer.Option(help="Keep the GPU awake while reads are waited for: auto, on, off.")
    ] = "auto",
    cache_limit: Annotated[
        str | None,
        typer.Option(
            help="Freed buffers that MLX may keep, such as 512MiB, or 0. Default: what a generation works in."
        ),
    ] = None,
    prompt: Annotated[str, typer.Option(help="The text to answer or continue.")] = DEFAULT_PROMPT,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it stands, without the chat template.")
    ] = False,
    json_out: Annotated[
        str | None, typer.Option("--json", help="Write the report's row as JSON: a file, or - for stdout.")
    ] = None,
    trace_out: Annotated[
        Path | None,
        typer.Option(help="Also run each path once for a timeline and write it here, for Perfetto to open."),
    ] = None,
    spool: Annotated[Path | None, typer.Option(help="Also leave the Arrow tables here.")] = None,
    lock: LockOption = None,
    cache: CacheOption = None,
) -> None:
    """Run the benchmark described by these flags and print the report's row."""
    stop_on_signals()
    described: Any = {
        "checkpoint": CheckpointRef(source=checkpoint, mtp=mtp),
        "prompts": (Prompt(id="bench", category="bench", text=prompt, chat=not raw),),
        "verify_width": verify_width,
        "slots_per_layer": slots,
        "memory_budget_bytes": None if memory_budget is None else _byte_count(memory_budget),
        "allocation": allocation,
        "eviction": eviction,
        "verify_mode": verify_mode,
        "rollback": rollback,
        "draft_policy": draft_policy,
        "draft_confidence": draft_confidence,
        "compute_dtype": compute_dtype,
        "read_path": read_path,
        "page_cache": page_cache,
        "prefetch": prefetch,
        "prefetch_ranks": prefetch_ranks,
        "keep_warm": keep_warm,
        "cache_limit_bytes": None if cache_limit is None else _byte_count(cache_limit, "--cache-limit", least=0),
        "protocol": Protocol(
            max_tokens=max_tokens,
            repeats=repeats,
            warmup_tokens=warmup_tokens,
            order=order,  # type: ignore[arg-type]
            pin_hot_experts=pin_hot_experts,
            timeline=trace_out is not None,
        ),
    }
    task = Task(**described)
    if trace_out:
        check_writable(trace_out)
    if json_out not in (None, "-"):
        check_writable(Path(json_out))
    writer = SpoolWriter(spool) if spool else None
    tables = _measure(task, _labels("bench", "1", ""), lock, cache, _print_progress())
    if writer:
        writer.complete(tables)
    verdict = _print_report(tables, prompt, json_out)
    if trace_out:
        write_text(trace_out, _trace(tables["events"]))
    if verdict == "wrong":
        raise WorkerError("the speculative tokens are wrong: they differ from the greedy ones without an excuse")


@app.command()
def probe() -> None:
    """Print what this machine is (chip, cores, memory, system, SSD, versions) and its build, as JSON."""
    from worker.machine.probe import probe as ask

    typer.echo(json.dumps(ask(), ensure_ascii=False, indent=2))


def _byte_count(text: str, flag: str = "--memory-budget", *, least: int = 1) -> int:
    """Raises: TaskError when the text is no number with a unit of bytes, or fewer bytes than `least`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(B|[kKMGT]i?B)?\s*", text)
    unit = (match and match[2]) or "B"
    factor = (1024 if "i" in unit else 1000) ** "BKMGT".index(unit[0].upper())
    num_bytes = int(Decimal(match[1]) * factor) if match else -1
    if num_bytes < least:
        raise TaskError(f"{flag} is {text!r}, expected a number with a unit: 8GiB, 900MB or 8000000000")
    return num_bytes


def _measure(
    task: Task, labels: RunLabels, lock: Path | None, cache: Path | None, on_progress: Any
) -> dict[str, pa.Table]:
    """Hold the machine's lock, keep it awake, and run the task in this thread."""
    from worker.machine.awake import awake
    from worker.machine.lock import DEFAULT_LOCK, machine_lock

    with machine_lock(lock or DEFAULT_LOCK), awake():
        from worker.benchmark.run import run_task
        from worker.checkpoint.resolve import default_cache_directory

        return run_task(task, labels, cache or default_cache_directory(), on_progress)


def _labels(study_id: str, attempt_id: str, node: str) -> RunLabels:
    import platform

    from worker.benchmark.run import RunLabels

    return RunLabels(study_id=study_id, attempt_id=attempt_id, node=node or platform.node() or "local")


def _print_report(tables: dict[str, pa.Table], prompt: str, json_out: str | None) -> str | None:
    """Print the row for people or as JSON and return its exactness."""
    from rich.console import Console

    from fleet.report.hardware import hardware_report
    from fleet.report.json import row_dict
    from fleet.report.terminal import render

    report = hardware_report(tables, study="bench")
    row = row_dict(report.rows[0])
    if json_out is None:
        render(report, Console())
        return row["exactness"]
    ids = {path: _token_ids(tables["tokens"], path) for path in ("greedy", "speculative")}
    row |= {"greedy_token_ids": ids["greedy"], "speculative_token_ids": ids["speculative"], "prompt": prompt}
    text = json.dumps(row, ensure_ascii=False, indent=2)
    if json_out == "-":
        typer.echo(text)
    else:
        write_text(Path(json_out), text)
    return row["exactness"]


def _trace(events: pa.Table) -> str:
    from worker.benchmark.chrome_trace import chrome_trace

    return json.dumps(chrome_trace(events))


def _token_ids(tokens: pa.Table, path: str) -> list[int]:
    rows = tokens.select(["path", "token_index", "token_id"]).to_pylist()
    return [row["token_id"] for row in sorted(rows, key=lambda row: row["token_index"]) if row["path"] == path]


def _print_progress() -> Any:
    """A progress line per phase and repeat on stderr."""
    last = ""

    def show(progress: Progress) -> None:
        nonlocal last
        repeat = f" {progress.repeat}/{progress.repeats}" if progress.repeat else ""
        speed = f", {progress.tok_s:.1f} tok/s" if progress.tok_s else ""
        line = f"{progress.phase}{repeat}"
        if line != last:
            say(f"{progress.fraction:4.0%} {line}{speed}")
            last = line

    return show


def watch_parent(pid: int) -> None:
    """End this process when its supervisor is gone: first as a signal would, then for good."""

    def watch() -> None:
        while os.getppid() == pid:
            time.sleep(_PARENT_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os._exit(EXIT_INTERRUPTED)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def main() -> None:
    """The console script: errors of ours become one line and an exit code."""
    # The tokenizer's library announces at import that it found no PyTorch; nothing here needs it.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.captureWarnings(True)
    try:
        app()
    except InterruptedRunError as error:
        say(f"error: {error}")
        sys.exit(EXIT_INTERRUPTED)
    except TaskError as error:
        say(f"error: {error}")
        sys.exit(EXIT_USAGE)
    except WorkerError as error:
        say(f"error: {error}")
        sys.exit(EXIT_FAILED)
