"""The `fleet` command as a user runs it, on the bundled model: a home, a cache and a machine lock of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROMPT = '{"id": "code", "category": "code", "text": "def mean(values):\\n    \\"\\"\\"Return", "chat": false}\n'


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """One data directory and one study file beside it."""

    folder: Path
    cache: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def study(self) -> Path:
        return self.folder / "study.toml"

    def write_study(
        self,
        *,
        source: str = "demo",
        matrix: str = "verify_width = [3]",
        prompts: str = PROMPT,
        max_tokens: int = 12,
        protocol: str = "",
    ) -> Path:
        (self.folder / "prompts.jsonl").write_text(prompts)
        self.study.write_text(
            f'name = "small"\n[checkpoint]\nsource = "{source}"\n[prompts]\nfile = "prompts.jsonl"\n'
            f"[matrix]\n{matrix}\n[protocol]\nmax_tokens = {max_tokens}\nrepeats = 1\nrewarm_tokens = 2\n"
            f"{protocol}\n"
        )
        return self.study

    def arguments(self, command: str, *more: str) -> list[str]:
        places = ["--data", str(self.data)]
        if command in ("submit", "demo"):
            places += ["--cache", str(self.cache), "--lock", str(self.folder / "machine.lock")]
        return [sys.executable, "-m", "fleet.cli.main", command, *more, *places]

    def run(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(command, *more),
            check=False,
            capture_output=True,
            text=True,
            timeout=170,
            env=self.environment(),
        )

    def start(self, command: str, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.arguments(command, *more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder), "NO_COLOR": "1"}

    def state(self) -> dict[str, Any]:
        ended = self.run("status", "small", "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture
def fleet(tmp_path: Path, cache_directory: Path) -> Fleet:
    return Fleet(folder=tmp_path, cache=cache_directory)
