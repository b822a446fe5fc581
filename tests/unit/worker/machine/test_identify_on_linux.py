from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path

import pytest

from worker.contract.schema import RUNS
from worker.machine.command import run_command
from worker.machine.comparability import COMPARABLE_FIELDS, comparability_key
from worker.machine.condition import condition
from worker.machine.identify import MachineIdentity, MlxFacts, identify, read_mlx

CPUINFO = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9R14 \nmodel name\t: other\n"
RELEASE = (
    '# a comment\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID=\'12\'\nEMPTY=\n'
)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def test_every_field_is_a_machine_column_of_the_runs_table_and_none_is_missing() -> None:
    names = RUNS.names
    machine_columns = names[names.index("hardware_model") : names.index("checkpoint")]
    assert [field.name for field in dataclasses.fields(MachineIdentity)] == machine_columns


def test_a_recorded_linux_machine_is_read_to_the_letter(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/cpuinfo": CPUINFO,
            "proc/meminfo": "MemTotal:       24684084 kB\nMemFree:        1 kB\n",
            "proc/sys/kernel/osrelease": "6.1.0-25-amd64\n",
            "etc/os-release": RELEASE,
            "sys/class/dmi/id/product_name": "ThinkStation P620\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        },
    )
    found = identify(system="Linux", root=root, mlx=lambda: MlxFacts(device="cpu x86_64"))
    assert found.hardware_model == "ThinkStation P620"
    assert found.chip == "AMD EPYC 9R14"
    assert found.memory_bytes == 24684084 * 1024
    assert (found.os_name, found.os_version, found.os_build) == ("Debian GNU/Linux", "12", "6.1.0-25-amd64")
    assert found.power_mode == "performance"
    assert found.mlx_device == "cpu x86_64"
    assert found.gpu_cores is None


def test_a_machine_that_says_nothing_has_no_facts_but_its_process_has(tmp_path: Path) -> None:
    found = identify(system="Linux", root=tmp_path, mlx=MlxFacts)
    assert found.chip is found.hardware_model is found.memory_bytes is found.os_version is None
    assert found.os_name == "Linux"
    assert found.python_version == platform.python_version()


def test_an_unknown_system_is_named_and_nothing_else_is_guessed() -> None:
    found = identify(system="Haiku", mlx=MlxFacts)
    assert (found.os_name, found.chip, found.memory_bytes) == ("Haiku", None, None)


def test_the_niceness_and_thread_limit_of_this_process_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = identify(system="Linux", mlx=MlxFacts)
    assert found.omp_num_threads == 3
    assert found.nice == os.getpriority(os.PRIO_PROCESS, 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert identify(system="Linux", mlx=MlxFacts).omp_num_threads is None


@pytest.mark.skipif(platform.system() != "Linux", reason="reads this machine's /proc")
def test_this_machine_is_identified_and_mlx_is_asked() -> None:
    found = identify()
    assert found.memory_bytes is not None
    assert found.memory_bytes > 2**28
    assert found.cpu_cores == len(os.sched_getaffinity(0))
    assert found.mlx_device == read_mlx().device
    assert found.mlx_device is not None
    assert found.mlx_device.split()[0] in ("cpu", "gpu")
    assert found.mlx_version
    assert found.mlx_wheel_tag
    assert found.mlx_wheel_tag.count("-") >= 2


def test_comparability_keys_differ_in_each_listed_field_and_in_no_other() -> None:
    one = identify(system="Linux", mlx=MlxFacts)
    for field in dataclasses.fields(MachineIdentity):
        other = dataclasses.replace(one, **{field.name: "changed"})
        differs = comparability_key(one) != comparability_key(other)
        assert differs == (field.name in COMPARABLE_FIELDS), field.name
    assert set(COMPARABLE_FIELDS) == {f.name for f in dataclasses.fields(MachineIdentity)} - {"cpu_tiers"}


def test_a_condition_is_read_from_recorded_files(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "sys/class/power_supply/AC/type": "Mains\n",
            "sys/class/power_supply/AC/online": "0\n",
            "sys/class/power_supply/BAT0/type": "Battery\n",
            "sys/class/power_supply/BAT0/online": "1\n",
            "sys/class/thermal/cooling_device0/type": "Processor\n",
            "sys/class/thermal/cooling_device0/cur_state": "0\n",
            "sys/class/thermal/cooling_device1/type": "Processor\n",
            "sys/class/thermal/cooling_device1/cur_state": "2\n",
        },
    )
    found = condition(system="Linux", root=root)
    assert (found.on_ac_power, found.thermal_pressure) == (False, "limited")
    assert found.load_average is not None
    (root / "sys/class/thermal/cooling_device1/cur_state").write_text("0\n")
    assert condition(system="Linux", root=root).thermal_pressure == "nominal"
    nothing = condition(system="Linux", root=tmp_path / "empty")
    assert (nothing.on_ac_power, nothing.thermal_pressure) == (None, None)


def test_a_tool_that_is_missing_silent_or_foreign_to_utf8_gives_text_or_none() -> None:
    assert run_command(["/nonexistent/tool"]) is None
    assert run_command(["/bin/sh", "-c", "true"]) is None
    assert run_command(["/bin/sh", "-c", "printf 'a\\377b'; exit 3"]) == "a\N{REPLACEMENT CHARACTER}b"
    assert run_command(["/bin/sh", "-c", 'echo "$LC_ALL"']) == "C\n"
