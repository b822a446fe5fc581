"""The wheel that machines get holds what the build backend packs, and is the same bytes however we are installed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from fleet.cluster.wheel import BUNDLED, lock_file, pack

REPOSITORY = Path(__file__).parents[4]


def names(wheel: Path | io.BytesIO) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_it_holds_what_the_build_backend_packs(tmp_path):
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (built,) = tmp_path.glob("*.whl")
    assert built.name == pack().name
    assert names(io.BytesIO(pack().content)) == names(built)


def test_the_same_installation_gives_the_same_bytes_also_when_it_was_installed_from_that_wheel(tmp_path):
    wheel = pack()
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
        archive.extractall(tmp_path)
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    code = "from fleet.cluster import wheel; print(wheel.__file__); print(wheel.pack().digest)"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    where, digest = ended.stdout.split()
    assert where.startswith(str(tmp_path))
    assert digest == wheel.digest


def test_what_lies_outside_the_packages_is_named_as_the_project_file_names_it():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == BUNDLED
    assert lock_file() == (REPOSITORY / "requirements.lock").read_bytes()
