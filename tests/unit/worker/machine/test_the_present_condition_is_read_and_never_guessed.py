from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from tests.unit.worker.machine.recorded import recorded
from worker.contract.condition import PresentCondition, condition_from_json
from worker.machine.present import present_condition
from worker.machine.processes import parse_model_processes

MACS = {
    "m1_air": (False, "low", "limited", "warn", ("mlx_lm",), None, ("lena", "lukas")),
    "m2_mini": (True, None, "nominal", "normal", (), 36000.123456789, ()),
    "m4_max": (
        True,
        "high",
        "nominal",
        "normal",
        ("LM Studio", "llama-server", "mlx_lm", "ollama"),
        40.213958125,
        ("anna",),
    ),
    "m5_pro": (True, "normal", "heavy", "critical", None, None, None),
    "vm": (None, None, None, None, None, None, None),
    "garbage": (None, None, None, None, None, None, None),
}


@pytest.mark.parametrize("machine", MACS)
def test_a_recorded_mac_is_read_to_the_letter(machine: str) -> None:
    found = present_condition(recorded(machine), system="Darwin")
    assert (
        found.on_ac_power,
        found.power_mode,
        found.thermal_level,
        found.memory_pressure,
        found.model_processes,
        found.user_idle_s,
        found.users,
    ) == MACS[machine]


def test_a_lowered_clock_is_told_where_the_systems_own_level_says_nominal() -> None:
    assert present_condition(recorded("m1_air"), system="Darwin").thermal_level == "limited"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/usr/local/bin/ollama serve", "ollama"),
        ("/opt/Ollama", "ollama"),
        ("/Applications/Ollama.app/Contents/MacOS/Ollama hidden", "ollama"),
        ("python3 -u -m mlx_lm server --model x", "mlx_lm"),
        ("/opt/venv/bin/python /opt/venv/bin/vllm serve", "vllm"),
        ("/opt/venv/bin/python -m mlx_vlm.server", "mlx_vlm"),
        ("python3 train.py --with mlx_lm", None),
        ("python3", None),
        ("bash -c ollama", None),
        ("ssh mini ollama ps", None),
        ("vim mlx_lm.py", None),
    ],
)
def test_a_program_counts_by_what_is_executed_not_by_what_is_mentioned(command: str, program: str | None) -> None:
    assert parse_model_processes(f"  1 /sbin/init\n  77 {command}\n") == ((program,) if program else ())


def test_on_linux_the_governor_and_the_processes_are_read_and_the_rest_is_unknown(tmp_path: Path) -> None:
    governor = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave\n")
    found = present_condition(recorded("m1_air"), system="Linux", root=tmp_path)
    assert (found.power_mode, found.model_processes, found.users) == ("powersave", ("mlx_lm",), ("lena", "lukas"))
    assert found.on_ac_power is found.thermal_level is found.memory_pressure is found.user_idle_s is None


def test_a_machine_whose_tools_are_missing_says_nothing() -> None:
    found = present_condition(lambda command: None, system="Darwin")
    assert found == PresentCondition(load_average=found.load_average)


def test_what_a_machine_prints_is_read_back() -> None:
    found = present_condition(recorded("m4_max"), system="Darwin")
    assert condition_from_json(found.to_json()) == found
    assert set(json.loads(found.to_json())) == {
        "on_ac_power",
        "power_mode",
        "thermal_level",
        "load_average",
        "memory_pressure",
        "model_processes",
        "user_idle_s",
        "users",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Traceback",
        "[]",
        "[" * 100_000,
        '{"on_ac_power": "yes", "load_average": true, "users": "anna", "model_processes": [1], "thermal_level": 0}',
    ],
)
def test_what_another_build_or_a_broken_pipe_prints_is_unknown(text: str) -> None:
    assert condition_from_json(text) == PresentCondition()


@pytest.mark.skipif(platform.system() != "Linux", reason="reads this machine's /proc")
def test_this_machine_answers() -> None:
    found = present_condition()
    assert found.load_average is not None
    assert found.user_idle_s is None
