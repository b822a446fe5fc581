"""Run the worker's command line as a user does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.contract.task import CheckpointRef, Prompt, Protocol, Task

WORKER = [sys.executable, "-m", "worker.cli"]


@pytest.fixture
def worker(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command to its end, with a lock of its own."""

    def run(*arguments: object, lock: bool = True) -> subprocess.CompletedProcess[str]:
        extra = ["--lock", str(tmp_path / "lock")] if lock else []
        command = [*WORKER, *map(str, arguments), *extra]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture
def task() -> Task:
    return Task(
        checkpoint=CheckpointRef(source="demo"),
        prompts=(Prompt(id="p", category="code", text="def median(values):", chat=False),),
        verify_width=2,
        slots_per_layer=16,
        protocol=Protocol(max_tokens=6, repeats=1, rewarm_tokens=2),
    )


@pytest.fixture
def task_file(task: Task, tmp_path: Path) -> Path:
    path = tmp_path / "task.json"
    path.write_text(task.to_json())
    return path
