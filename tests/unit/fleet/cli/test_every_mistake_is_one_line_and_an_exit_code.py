"""What a user meets: `error:`, `hint:`, the exit code, never a traceback; help stays instant."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fleet import errors
from fleet.errors import FleetError


def fleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli.main", *arguments], check=False, capture_output=True, text=True, timeout=60
    )


def study(folder: Path, *, source: str = "demo", matrix: str = "", name: str = "tiny") -> Path:
    (folder / "prompts.jsonl").write_text('{"id": "a", "category": "c", "text": "def f():", "chat": false}\n')
    path = folder / "study.toml"
    path.write_text(
        f'name = "{name}"\n[checkpoint]\nsource = "{source}"\n[prompts]\nfile = "prompts.jsonl"\n[matrix]\n{matrix}\n'
    )
    return path


def expect(ended: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"]
    for part in parts:
        assert part in ended.stderr


def test_an_unknown_key_is_named_with_those_allowed(tmp_path):
    path = study(tmp_path, matrix="verify_widht = [2]")
    expect(
        fleet("submit", str(path), "--data", str(tmp_path / "d")), 2, str(path), "matrix.verify_widht", "verify_width"
    )


def test_a_missing_checkpoint_is_refused_before_any_run(tmp_path):
    path = study(tmp_path, source="nowhere")
    expect(fleet("submit", str(path), "--data", str(tmp_path / "d")), 2, str(tmp_path / "nowhere"))
    assert not (tmp_path / "d").exists()


def test_a_pool_below_the_floor_is_refused_before_any_run_with_the_number(tmp_path):
    path = study(tmp_path, matrix="verify_width = [3]\nslots_per_layer = [64, 11]")
    expect(fleet("submit", str(path), "--data", str(tmp_path / "d")), 2, "slots_per_layer is 11", "floor of 12")
    assert not (tmp_path / "d").exists()


def test_a_store_that_cannot_be_written_is_refused_before_any_run(tmp_path):
    (tmp_path / "file").write_text("")
    expect(fleet("submit", str(study(tmp_path)), "--data", str(tmp_path / "file")), 2, str(tmp_path / "file"), "--data")
    expect(fleet("demo", "--data", str(tmp_path / "file" / "below")), 2, "cannot be written", "--data")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "store").write_text("")
    expect(fleet("submit", str(study(tmp_path)), "--data", str(tmp_path / "d")), 2, str(tmp_path / "d" / "store"))
    assert list((tmp_path / "d").iterdir()) == [tmp_path / "d" / "store"]


def test_a_study_that_does_not_exist_is_answered_with_those_that_do(tmp_path):
    expect(fleet("submit", "dmeo"), 2, "'dmeo'", "demo")
    expect(fleet("report", "dmeo", "--data", str(tmp_path)), 2, "holds no studies yet", "fleet submit")
    expect(fleet("status", "dmeo", "--data", str(tmp_path)), 2, "holds no studies yet")
    expect(fleet("report", "demo", "--last", "--data", str(tmp_path)), 2, "--last")


@pytest.mark.parametrize(
    "arguments", [("submit",), ("submit", "demo", "--fast"), ("report", "--format", "pdf"), ("x",)]
)
def test_wrong_arguments_end_with_two(arguments):
    ended = fleet(*arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_dry_run_prints_the_plan_and_touches_nothing(tmp_path):
    path = study(tmp_path, matrix="verify_width = [2, 3]\nslots_per_layer = [64, 16]")
    ended = fleet("submit", str(path), "--dry-run", "--data", str(tmp_path / "d"))
    assert ended.returncode == 0
    assert ended.stderr == ""
    assert ended.stdout.count(": to run") == 4
    assert not (tmp_path / "d").exists()
    plan = json.loads(fleet("submit", str(path), "--dry-run", "--json", "--data", str(tmp_path / "d")).stdout)
    assert [task["label"] for task in plan["tasks"]] == [
        "width 2, slots 64",
        "width 3, slots 64",
        "width 2, slots 16",
        "width 3, slots 16",
    ]


def test_a_dry_run_refuses_what_a_run_would_refuse(tmp_path):
    path = study(tmp_path, matrix="slots_per_layer = [1]")
    expect(fleet("submit", str(path), "--dry-run", "--data", str(tmp_path / "d")), 2, "floor of 12")


def test_no_study_yet_is_an_answer_for_status(tmp_path):
    assert "fleet submit STUDY" in fleet("status", "--data", str(tmp_path)).stdout
    assert json.loads(fleet("status", "--json", "--data", str(tmp_path)).stdout) == {
        "studies": [],
        "machines": [],
        "waits": {},
    }


def test_help_loads_nothing_heavy():
    code = "import sys, fleet.cli.main; print([m for m in ('ray', 'pyarrow', 'scipy', 'pydantic', 'mlx') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "[]"


def test_every_command_and_option_is_explained():
    from typer.main import get_command

    from fleet.cli.main import app

    group = get_command(app)
    commands = group.commands  # pyright: ignore[reportAttributeAccessIssue]
    assert set(commands) >= {"demo", "submit", "serve", "up", "down", "doctor", "machines", "schedule", "report"}
    below = [command for group in ("machines", "schedule") for command in commands[group].commands.values()]
    for command in (*commands.values(), *below):
        assert command.help
        assert all(getattr(parameter, "help", None) for parameter in command.params)


ALL_ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, FleetError)]


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_an_error_survives_pickling_and_is_drawn_in_the_tree_with_its_exit_code(kind):
    error = kind("what", "next")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.message, copy.hint, str(copy)) == (kind, "what", "next", "what; next")
    drawn = next(line for line in (errors.__doc__ or "").splitlines() if f"{kind.__name__} " in line)
    if kind is not FleetError:
        assert f" {kind.exit_code} " in drawn
