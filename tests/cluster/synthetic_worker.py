"""A worker that measures nothing: the command line, the spool and the tables of the real one, all rows synthetic.

Knobs come through the prompts' text, as words `name=value`; the first attempt on a machine is told from later ones by a
marker file, so that a fault can happen `once`.

    sleep=S             take S seconds, writing progress all along; first_sleep=S only at the first start
    crash=once|always   end itself by SIGKILL halfway
    fail=KIND           end with Failed of that kind (permanent, transient, lost); fail_times=N only N times
    hang=1              write no more progress and ignore SIGTERM, after a child that does so too
    marker=DIR          where the marker files and `runs.log` (one line per start) go
    schema=wrong        return a table of another schema
    rows=foreign        return rows of another attempt
    lock=1              hold the machine's lock as the real one does, and write begin and end into DIR/spans.log
    environment=1       write the environment and the nice level into DIR/environment.json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from worker.cli.main import watch_parent
from worker.contract.build import build_hash
from worker.contract.errors import MachineBusyError
from worker.contract.outcome import Failed
from worker.contract.schema import SCHEMA_VERSION, SCHEMAS
from worker.contract.spool import Progress, SpoolWriter
from worker.contract.task import Task
from worker.machine.lock import machine_lock


def main() -> int:
    arguments = _parse()
    task = Task.from_json(Path(arguments.task).read_text(encoding="utf-8"))
    knobs = dict(word.split("=", 1) for prompt in task.prompts for word in prompt.text.split() if "=" in word)
    marker = Path(knobs.get("marker") or arguments.spool)
    starts = _count_start(marker, task, arguments)
    if "environment" in knobs:
        leads = os.getsid(0) == os.getpgid(0) == os.getpid()
        seen = {"environment": dict(os.environ), "nice": os.nice(0), "modules": sorted(sys.modules), "leads": leads}
        (marker / "environment.json").write_text(json.dumps(seen))
    spool = SpoolWriter(Path(arguments.spool))
    print("synthetic worker at work", file=sys.stderr, flush=True)
    if arguments.parent_pid is not None:
        watch_parent(arguments.parent_pid)
    if "lock" not in knobs:
        return _run(arguments, task, knobs, spool, starts, marker)
    try:
        with machine_lock(Path(arguments.lock)):
            with (marker / "spans.log").open("a") as spans:
                spans.write(f"{arguments.node} {time.monotonic()} {os.getpid()} begin\n")
            status = _run(arguments, task, knobs, spool, starts, marker)
            with (marker / "spans.log").open("a") as spans:
                spans.write(f"{arguments.node} {time.monotonic()} {os.getpid()} end\n")
            return status
    except MachineBusyError as error:
        spool.finish(Failed(kind="transient", error="MachineBusyError", message=error.message, hint=error.hint))
        return 1


def _run(
    arguments: argparse.Namespace, task: Task, knobs: dict[str, str], spool: SpoolWriter, starts: int, marker: Path
) -> int:
    spool.progress(Progress(phase="load", fraction=0.1, prompt_id=task.prompts[0].id))
    seconds = knobs.get("first_sleep", "0") if starts == 1 else "0"
    _work(spool, task, float(knobs.get("sleep", seconds)))
    if knobs.get("crash") == "always" or (knobs.get("crash") == "once" and starts == 1):
        print("about to crash", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if "hang" in knobs:
        _hang(marker)
    if "fail" in knobs and starts <= int(knobs.get("fail_times", "1000")):
        kind: Any = knobs["fail"]
        spool.finish(Failed(kind=kind, error="SyntheticError", message=f"told to fail ({kind})", hint="do not tell it"))
        return 1
    spool.progress(Progress(phase="done", fraction=1.0))
    attempt_id = "another" if knobs.get("rows") == "foreign" else arguments.attempt_id
    tables = rows(task, arguments.study_id, attempt_id, arguments.node)
    if knobs.get("schema") == "wrong":
        tables["checks"] = tables["checks"].rename_columns(["x", *tables["checks"].column_names[1:]])
    spool.complete(tables)
    return 0


def rows(task: Task, study_id: str, attempt_id: str, node: str) -> dict[str, pa.Table]:
    """Deterministic tables: every column that a report needs, synthetic set, the rest null."""
    keys = [
        {"study_id": study_id, "task_id": task.id, "attempt_id": attempt_id, "prompt_id": prompt.id}
        for prompt in task.prompts
    ]
    now = datetime.now(UTC)
    run = {
        "schema_version": SCHEMA_VERSION,
        "build_hash": build_hash(),
        "synthetic": True,
        "node": node,
        "chip": "synthetic",
        "memory_bytes": 1 << 30,
        "started_at": now,
        "finished_at": now,
        "checkpoint": task.checkpoint.source,
        "checkpoint_digest": "0" * 16,
        "verify_width": task.verify_width,
        "num_draft_tokens": task.num_draft_tokens,
        "verify_mode": task.verify_mode,
        "rollback": task.rollback,
        "eviction": task.eviction,
        "slots_per_layer": task.slots_per_layer,
        "max_tokens": task.protocol.max_tokens,
        "repeats": task.protocol.repeats,
        "order": task.protocol.order,
        "start_to_first_token_s": 0.25,
        "exact": True,
        "exactness": "identical",
        "num_mismatches": 0,
    }
    counters = {"num_forwards": 10, "num_routed": 100, "num_hits": 80, "num_disk_loads": 20, "disk_bytes": 2000}
    repeats = [
        {
            **key,
            "path": path,
            "instrumented": False,
            "repeat_index": index,
            "sequence_index": 2 * index + (path == "speculative"),
            "started_at": now,
            "num_tokens": 11,
            "decode_tokens": 11,
            "stop_reason": "length",
            "prefill_s": 0.5,
            "ttft_s": 0.5,
            "decode_s": seconds,
            "num_steps": 5 if path == "speculative" else None,
            "accept_histogram": [0, 2, 3] if path == "speculative" else None,
            "prefill": counters,
            "decode": counters if path == "greedy" else None,
            "verify": counters if path == "speculative" else None,
            "peak_bytes": 1 << 20,
        }
        for key in keys
        for index in range(task.protocol.repeats)
        for path, seconds in (("greedy", 1.0 + index / 100), ("speculative", 0.5 + index / 100))
    ]
    tokens = [
        {**key, "path": path, "token_index": index, "token_id": index + 1}
        for key in keys
        for path in ("greedy", "speculative")
        for index in range(11)
    ]
    found: dict[str, list[dict[str, Any]]] = {
        "runs": [{**key, **run, "prompt_category": p.category} for key, p in zip(keys, task.prompts, strict=True)],
        "repeats": repeats,
        "tokens": tokens,
        "checks": [{**key, "name": "byte_oracle", "num_run": 1, "num_failed": 0} for key in keys],
    }
    return {name: pa.Table.from_pylist(found.get(name, []), schema=schema) for name, schema in SCHEMAS.items()}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["run"])
    parser.add_argument("task")
    for flag in ("--spool", "--study-id", "--attempt-id", "--node"):
        parser.add_argument(flag, required=True)
    for flag in ("--lock", "--cache"):
        parser.add_argument(flag)
    parser.add_argument("--parent-pid", type=int)
    return parser.parse_args()


def _count_start(marker: Path, task: Task, arguments: argparse.Namespace) -> int:
    """Append one line to the log of starts; return how often this task has been started, this time included."""
    log = marker / "runs.log"
    with log.open("a") as handle:
        line = {"task": task.id, "attempt": arguments.attempt_id, "pid": os.getpid(), "parent": arguments.parent_pid}
        handle.write(json.dumps(line) + "\n")
    return sum(json.loads(line)["task"] == task.id for line in log.read_text().splitlines())


def _work(spool: SpoolWriter, task: Task, seconds: float) -> None:
    steps = max(int(seconds / 0.1), 1)
    for step in range(steps):
        repeats = task.protocol.repeats
        repeat = min(step * repeats // steps + 1, repeats)
        fraction = 0.1 + 0.8 * step / steps
        spool.progress(Progress(phase="greedy", fraction=fraction, repeat=repeat, repeats=repeats, tok_s=10.0))
        time.sleep(seconds / steps)


def _hang(marker: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
    (marker / "child.pid").write_text(str(child.pid))
    time.sleep(600)


if __name__ == "__main__":
    sys.exit(main())
