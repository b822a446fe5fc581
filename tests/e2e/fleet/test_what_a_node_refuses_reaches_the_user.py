"""Failures that only the worker can see come back as one line with advice, exit code 1, and no row is stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import worker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

DEMO = Path(next(iter(worker.__path__))) / "demo"


def expect_failure(fleet, *parts: str) -> None:
    ended = fleet.run("submit", str(fleet.study))
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    error, hint = ended.stderr.splitlines()[-2:]
    assert error.startswith("error: 1 of 1 tasks failed: ")
    assert hint.startswith("hint: ")
    for part in parts:
        assert part in error
    assert list((fleet.data / "store").rglob("*.parquet")) == []
    assert {task["attempts"] for task in fleet.state()["tasks"]} == {1}


def test_a_truncated_checkpoint(fleet):
    copy = fleet.folder / "model"
    shutil.copytree(DEMO, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    fleet.write_study(source=str(copy))
    expect_failure(fleet, "model.safetensors")
    assert list(fleet.cache.glob("**/*.tmp*")) == []


def test_a_prompt_longer_than_the_context(fleet):
    text = json.dumps({"id": "long", "category": "c", "text": "word " * 9000, "chat": False})
    fleet.write_study(prompts=text + "\n")
    expect_failure(fleet, "long", "4096")
