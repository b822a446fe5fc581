from __future__ import annotations

import pytest

from tests.unit.worker.machine.recorded import SAMPLES, recorded
from worker.machine.condition import condition
from worker.machine.identify import MachineIdentity, MlxFacts, identify

GIB = 2**30

MACS = {
    "m1_air": ("MacBookAir10,1", "Apple M1", 8, "4 Performance + 4 Efficiency", 7, 8 * GIB, "14.7.1", "23H222", "low"),
    "m2_mini": ("Mac14,3", "Apple M2", 8, "4 Performance + 4 Efficiency", 10, 16 * GIB, "15.3.2", "24D81", None),
    "m4_max": ("Mac16,5", "Apple M4 Max", 16, "12 Performance + 4 Efficiency", 40, 128 * GIB, "26.3", "25D125", "high"),
    "m5_pro": ("Mac17,8", "Apple M5 Pro", 18, "6 Super + 12 Performance", 20, 48 * GIB, "26.3.1", "25D2128", "normal"),
    "vm": ("VirtualMac2,1", "Apple M2 Pro (Virtual)", 4, "4 level 0", None, 8 * GIB, "15.6", "24G84", None),
    "garbage": (None, None, None, None, None, None, None, None, None),
    "other_locale": ("Mac15,6", "Apple M3 Pro", 11, "5 Leistung + 6 Effizienz", 14, 18 * GIB, "15.5", "24F74", "low"),
}

CONDITIONS = {
    "m1_air": (False, "limited"),
    "m2_mini": (True, "nominal"),
    "m4_max": (True, "nominal"),
    "m5_pro": (True, None),
    "vm": (None, None),
    "garbage": (None, None),
    "other_locale": (None, None),
}


def identify_mac(machine: str, mlx: MlxFacts | None = None) -> MachineIdentity:
    return identify(recorded(machine), system="Darwin", mlx=lambda: mlx or MlxFacts())


def test_every_recorded_machine_is_expected() -> None:
    assert set(MACS) == set(CONDITIONS) == {path.name for path in SAMPLES.iterdir()}


@pytest.mark.parametrize("machine", MACS)
def test_a_recorded_mac_is_read_to_the_letter(machine: str) -> None:
    found = identify_mac(machine)
    assert (
        found.hardware_model,
        found.chip,
        found.cpu_cores,
        found.cpu_tiers,
        found.gpu_cores,
        found.memory_bytes,
        found.os_version,
        found.os_build,
        found.power_mode,
    ) == MACS[machine]
    assert found.os_name == "macOS"


@pytest.mark.parametrize("machine", CONDITIONS)
def test_a_recorded_condition_is_read_and_never_guessed(machine: str) -> None:
    found = condition(recorded(machine), system="Darwin")
    assert (found.on_ac_power, found.thermal_pressure) == CONDITIONS[machine]


def test_a_wired_limit_that_somebody_set_wins_over_the_default() -> None:
    facts = MlxFacts(device="gpu applegpu_g14g", working_set_bytes=11 * GIB)
    assert identify_mac("m2_mini", facts).wired_limit_bytes == 13312 * 2**20
    assert identify_mac("m1_air", facts).wired_limit_bytes == 11 * GIB
    assert identify_mac("m1_air").wired_limit_bytes is None


def test_the_slow_system_profiler_is_asked_only_when_ioreg_has_no_answer() -> None:
    asked: list[str] = []
    answer = recorded("m4_max")

    def run(command):
        asked.append(command[0])
        return answer(command)

    identify(run, system="Darwin", mlx=MlxFacts)
    assert "/usr/sbin/ioreg" in asked
    assert "/usr/sbin/system_profiler" not in asked
