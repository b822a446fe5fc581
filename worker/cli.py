"""`worker`: the benchmark on this machine, without Ray.

    worker prepare SOURCE --out DIR     bring a checkpoint into the layout that experts stream from
    worker verify DIR                   compare a prepared checkpoint with its manifest
    worker run TASK.json --spool DIR    run one task, as the fleet does, and leave its tables in a spool
    worker bench                        describe a task by flags, run it, and print the report's row

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
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from worker.contract.errors import InterruptedRunError, StorageError, TaskError, WorkerError
from worker.contract.outcome import Failed
from worker.contract.spool import Progress, SpoolWriter
from worker.contract.task import BUNDLED_CHECKPOINT, CheckpointRef, Prompt, Protocol, Task

if TYPE_CHECKING:
    import pyarrow as pa

    from worker.benchmark.run import RunLabels

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benchmark a streamed MoE model on this machine.")

DEFAULT_PROMPT = "用三句话解释什么是混合专家模型。"
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
_PARENT_POLL_S = 0.5
_GRACE_S = 5.0

CacheOption = Annotated[
    Path | None, typer.Option(help="Where prepared checkpoints are kept. Default: the user's cache.")
]
LockOption = Annotated[Path | None, typer.Option(help="The machine's benchmark lock. Default: one for all users.")]


@app.command()
def prepare(
    source: Annotated[str, typer.Argument(help="An MLX-format checkpoint, or 'demo'.")],
    out: Annotated[Path, typer.Option(help="The directory to make.")],
    mtp: Annotated[
        Path | None, typer.Option(help="The file with the mtp.* tensors. Default: SOURCE/mtp.safetensors.")
    ] = None,
    compute_dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    cache: CacheOption = None,
) -> None:
    """Bring a checkpoint into the layout that experts stream from: one contiguous record per expert."""
    from worker.checkpoint.prepare import MLX_DTYPES, prepare
    from worker.checkpoint.resolve import BUNDLED_DIRECTORY, default_cache_directory, open_stamps, stored_dtype
    from worker.checkpoint.source import read_source
    from worker.model.build import backend_dtype

    directory = BUNDLED_DIRECTORY if source == BUNDLED_CHECKPOINT else Path(source).expanduser()
    found = read_source(directory, mtp)
    dtype: Any = (
        (backend_dtype() or stored_dtype(directory, found.config)) if compute_dtype == "auto" else compute_dtype
    )
    if dtype not in MLX_DTYPES or dtype == "uint32":
        raise TaskError(f"compute dtype is {dtype!r}, expected auto, float32, bfloat16 or float16")
    manifest = prepare(
        found,
        out,
        compute_dtype=dtype,
        stamps=open_stamps(cache or default_cache_directory()),
        name=BUNDLED_CHECKPOINT if source == BUNDLED_CHECKPOINT else None,
        on_progress=lambda fraction, what: _say(f"prepare {fraction:4.0%} {what}"),
    )
    typer.echo(
        f"{out}: {len(manifest.moe_layers)} layers x {manifest.num_experts} experts, {dtype}, {manifest.source_digest}"
    )


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(help="A prepared checkpoint.")], cache: CacheOption = None
) -> None:
    """Compare every file and every expert record with the manifest's digests."""
    from worker.checkpoint.layout import read_manifest
    from worker.checkpoint.resolve import default_cache_directory, open_stamps
    from worker.checkpoint.verify import check_files, check_records, check_sizes

    manifest = read_manifest(directory)
    stamps = open_stamps(cache or default_cache_directory())
    check_sizes(directory, manifest)
    check_files(directory, manifest, stamps, always=True)
    count = check_records(
        directory, manifest, stamps, always=True, on_progress=lambda fraction: _say(f"verify {fraction:4.0%}")
    )
    typer.echo(f"{directory}: {count} expert records and {len(manifest.files)} files agree with the manifest")


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
    _stop_on_signals()
    if parent_pid is not None:
        _watch_parent(parent_pid)
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
    pin_hot_experts: Annotated[int, typer.Option(help="Experts of each layer to pin after a calibration run.")] = 0,
    compute_dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    read_path: Annotated[str, typer.Option(help="auto, direct or staged.")] = "auto",
    prompt: Annotated[str, typer.Option(help="The text to answer or continue.")] = DEFAULT_PROMPT,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it stands, without the chat template.")
    ] = False,
    json_out: Annotated[
        str | None, typer.Option("--json", help="Write the report's row as JSON: a file, or - for stdout.")
    ] = None,
    spool: Annotated[Path | None, typer.Option(help="Also leave the Arrow tables here.")] = None,
    lock: LockOption = None,
    cache: CacheOption = None,
) -> None:
    """Run the benchmark described by these flags and print the report's row."""
    _stop_on_signals()
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
        "compute_dtype": compute_dtype,
        "read_path": read_path,
        "protocol": Protocol(
            max_tokens=max_tokens,
            repeats=repeats,
            warmup_tokens=warmup_tokens,
            order=order,  # type: ignore[arg-type]
            pin_hot_experts=pin_hot_experts,
        ),
    }
    task = Task(**described)
    writer = SpoolWriter(spool) if spool else None
    tables = _measure(task, _labels("bench", "1", ""), lock, cache, _print_progress())
    if writer:
        writer.complete(tables)
    verdict = _print_report(tables, prompt, json_out)
    if verdict == "wrong":
        raise WorkerError("the speculative tokens are wrong: they differ from the greedy ones without an excuse")


@app.command()
def anchor(
    source: Annotated[
        str, typer.Argument(help="An MLX-format checkpoint that fits in memory, or 'demo'.")
    ] = BUNDLED_CHECKPOINT,
    mtp: Annotated[str | None, typer.Option(help="The file with its mtp.* tensors.")] = None,
    slots: Annotated[
        str, typer.Option(help="Pool sizes to compare, separated by commas; 'all' is every expert.")
    ] = "all",
    max_tokens: Annotated[int, typer.Option(help="Tokens to emit per generation.")] = 96,
    rounds: Annotated[int, typer.Option(help="Times every arm runs.")] = 9,
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "def median(values):",
    lock: LockOption = None,
    cache: CacheOption = None,
) -> None:
    """Compare this engine with plain mlx-lm on the same checkpoint: greedy decoding, interleaved, in one process."""
    _stop_on_signals()
    from mlx_lm.utils import load_tokenizer

    from worker.benchmark.anchor import compare_with_plain
    from worker.checkpoint.resolve import BUNDLED_DIRECTORY, default_cache_directory, open_stamps, resolve
    from worker.decode.generation import Request
    from worker.machine.awake import awake
    from worker.machine.lock import DEFAULT_LOCK, machine_lock
    from worker.model.build import backend_dtype

    directory = BUNDLED_DIRECTORY if source == BUNDLED_CHECKPOINT else Path(source).expanduser()
    where = cache or default_cache_directory()
    with machine_lock(lock or DEFAULT_LOCK), awake():
        prepared = resolve(
            CheckpointRef(source=source, mtp=mtp), cache=where, compute_dtype=backend_dtype(), stamps=open_stamps(where)
        )
        counts = tuple(_slot_count(text, prepared.manifest.num_experts) for text in slots.split(","))
        request = Request(
            prompt_ids=tuple(load_tokenizer(directory).encode(prompt)),
            max_tokens=max_tokens,
            stop_ids=frozenset(),
            prefill_chunk_tokens=64,
        )
        arms = compare_with_plain(
            directory, prepared, request, slots=counts, rounds=rounds, on_round=lambda n: _say(f"round {n} of {rounds}")
        )
    typer.echo(f"{rounds} rounds of {max_tokens} tokens; ratio: median over rounds of the speed over plain mlx-lm's")
    typer.echo(
        f"{'arm':<18}{'tok/s':>8}{'ratio':>8}{'misses/token':>14}{'bytes/token':>13}{'host waits ms/token':>21}  tokens"
    )
    for arm in arms:
        ratio = f"{arm.median_ratio:8.3f}" if arm.median_ratio is not None else f"{'1':>8}"
        same = "same" if arm.same_tokens else "DIFFERENT"
        line = f"{arm.name:<18}{arm.median_tok_s:8.1f}{ratio}"
        if arm.misses_per_token is None:
            typer.echo(f"{line}{'-':>14}{'-':>13}{'-':>21}  {same}")
        else:
            waits = (
                f"{1e3 * (arm.route_wait_s_per_token or 0):.2f} route {1e3 * (arm.read_wait_s_per_token or 0):.2f} read"
            )
            typer.echo(f"{line}{arm.misses_per_token:14.2f}{arm.disk_bytes_per_token:13,.0f}{waits:>21}  {same}")


def _byte_count(text: str) -> int:
    """Raises: TaskError when the text is no positive number with a unit of bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(B|[kKMGT]i?B)?\s*", text)
    if match is None or float(match[1]) == 0:
        raise TaskError(f"--memory-budget is {text!r}, expected a number with a unit: 8GiB, 900MB or 8000000000")
    number, unit = Decimal(match[1]), match[2] or "B"
    base = 1024 if "i" in unit else 1000
    return int(number * base ** "BKMGT".index(unit[0].upper()))


def _slot_count(text: str, num_experts: int) -> int:
    """Raises: TaskError when the text is neither 'all' nor a whole number."""
    if text.strip() == "all":
        return num_experts
    if not text.strip().isdigit():
        raise TaskError(f"--slots has {text!r}, expected whole numbers or 'all', separated by commas")
    return int(text)


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
        try:
            Path(json_out).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write {json_out}: {error.strerror}", "choose another file") from error
    return row["exactness"]


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
            _say(f"{progress.fraction:4.0%} {line}{speed}")
            last = line

    return show


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _stop_on_signals() -> None:
    def stop(number: int, _frame: object) -> NoReturn:
        raise InterruptedRunError(f"stopped by {signal.Signals(number).name}")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _watch_parent(pid: int) -> None:
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
        _say(f"error: {error}")
        sys.exit(EXIT_INTERRUPTED)
    except TaskError as error:
        _say(f"error: {error}")
        sys.exit(EXIT_USAGE)
    except WorkerError as error:
        _say(f"error: {error}")
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
