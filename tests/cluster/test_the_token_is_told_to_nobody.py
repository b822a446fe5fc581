"""While a study runs and afterwards: the token stands in its own file only, and what is kept is its owner's alone."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fleet.cli.data import DataDirectory
from fleet.cli.report import Format, make_report, write_report
from fleet.cluster.settings import TOKEN_VARIABLE
from fleet.cluster.site import ThisMachine
from fleet.cluster.submit import submit
from fleet.cluster.watch import NobodyWatches
from fleet.nodes.node import NodeName
from tests.cluster.conftest import Bench, make_study
from worker.contract.private import own_directory
from worker.contract.spool import Progress

pytestmark = pytest.mark.cluster


class Here(ThisMachine):
    """This machine, on the Ray that runs already."""

    @contextlib.contextmanager
    def connect(self) -> Iterator[ThisMachine]:
        yield self


@dataclasses.dataclass
class Lookout(NobodyWatches):
    """Looks at everything while a benchmark runs."""

    data: Path
    command_lines: set[str] = dataclasses.field(default_factory=set)
    contents: dict[str, bytes] = dataclasses.field(default_factory=dict)
    modes: dict[str, int] = dataclasses.field(default_factory=dict)

    def progressed(self, node: NodeName, progress: Progress) -> None:
        del node, progress
        self.look()

    def look(self) -> None:
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                self.command_lines.add(" ".join(process.cmdline()))
        for path in [self.data, *self.data.rglob("*")]:
            with contextlib.suppress(FileNotFoundError):
                self.modes[path.relative_to(self.data).as_posix()] = stat.S_IMODE(path.stat().st_mode)
                if path.is_file():
                    self.contents[path.name] = self.contents.get(path.name, b"") + path.read_bytes()


def test_the_token_is_nowhere_but_in_its_file_and_no_file_is_others_to_read(bench: Bench, tmp_path: Path):
    token_file = Path(os.environ[TOKEN_VARIABLE])
    token = token_file.read_text()
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    marker = tmp_path / "marker"
    marker.mkdir()
    data = DataDirectory(root=tmp_path / "data")
    lookout = Lookout(data.root)
    study = make_study(f"marker={marker} sleep=1 environment=1")
    settings = bench.settings(spool=data.spool, logs=data.logs)
    state = submit(study, data=data.root, site=Here(bench.node), settings=settings, watcher=lookout)
    own_directory(data.reports)
    for form in (Format.md, Format.json, Format.html):
        write_report(make_report(state, data), form, data.reports / f"report.{form.value}")
    lookout.look()
    assert {name: oct(mode) for name, mode in lookout.modes.items() if mode & 0o077 and "report." not in name} == {}
    lookout.data = marker
    lookout.look()
    assert {"ledger.sqlite3", "live.json", "runs.parquet", "task.json", "worker.log", "environment.json"} <= {
        *lookout.contents
    }
    assert any("synthetic_worker" in line for line in lookout.command_lines)
    assert [name for name, content in lookout.contents.items() if token.encode() in content] == []
    assert [line for line in lookout.command_lines if token in line] == []


def test_what_ray_writes_down_does_not_hold_the_token(bench: Bench):
    token_file = Path(os.environ[TOKEN_VARIABLE])
    bench.run(make_study("plain"))
    written = [path for path in token_file.parent.rglob("*") if path.is_file() and path != token_file]
    assert any(path.suffix == ".log" for path in written)
    assert [path for path in written if token_file.read_bytes() in path.read_bytes()] == []
