"""Every parser of a tool's output answers any text at all, with a value in range or None."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worker.machine import linux, macos
from worker.machine.processes import parse_model_processes

SAMPLES = sorted(path for path in (Path(__file__).parent / "samples").rglob("*") if path.is_file())

PARSERS: list[Callable[[str | None], object]] = [
    macos.parse_gpu_cores,
    macos.parse_displays,
    macos.parse_ssd,
    macos.parse_line,
    macos.parse_power_mode,
    macos.parse_on_ac_power,
    macos.parse_thermal,
    macos.parse_thermal_level,
    macos.parse_memory_pressure,
    macos.parse_idle_s,
    macos.parse_users,
    parse_model_processes,
    macos.whole,
    lambda text: macos.cpu_cores(macos.parse_sysctl(text)),
    lambda text: macos.cpu_tiers(macos.parse_sysctl(text)),
    lambda text: macos.wired_limit_bytes(macos.parse_sysctl(text)),
    linux.parse_cpu_model,
    linux.parse_memory_bytes,
    linux.parse_os_release,
    linux.parse_word,
]

FRAGMENTS = st.sampled_from(
    [
        "hw.nperflevels: ",
        "hw.perflevel0.physicalcpu: ",
        "iogpu.wired_limit_mb: ",
        '"gpu-core-count" = ',
        '{"SPDisplaysDataType": [{"sppci_cores": "',
        '"}]}',
        "powermode ",
        "CPU_Speed_Limit = ",
        "com.apple.system.thermalpressurelevel ",
        '"HIDIdleTime" = ',
        "# users = ",
        "\n 1 /",
        " python -m ",
        ".app/Contents/",
        "MemTotal: ",
        " kB",
        "NAME=",
        "Now drawing from 'AC Power'",
        "\n",
        "9" * 5000,
        "٣",
        "[" * 3000,
    ]
)


@example("9" * 5000)
@example("9" * 30)
@example("[" * 100_000)
@example('"HIDIdleTime" = ' + "9" * 5000)
@example("com.apple.system.thermalpressurelevel 9")
@example("hw.nperflevels: " + "9" * 30)
@given(st.one_of(st.none(), st.text(), st.lists(FRAGMENTS | st.text(max_size=4) | st.integers().map(str)).map("".join)))
def test_any_text_is_answered_with_a_value_that_a_column_can_hold(text: str | None) -> None:
    for parse in PARSERS:
        value = parse(text)
        if isinstance(value, int | float):
            assert 0 <= value < 2**63
        if isinstance(value, str):
            assert value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_sample_cut_off_anywhere_is_answered(sample: Path) -> None:
    text = sample.read_text(encoding="utf-8")
    for end in range(0, len(text), 7):
        for parse in PARSERS:
            parse(text[:end])


def test_the_driver_sibling_is_not_mistaken_for_the_core_count() -> None:
    assert macos.parse_gpu_cores('"gpu-core-count (driver)"=7, "gpu-core-count" = 40') == 40
    assert macos.parse_gpu_cores('"gpu-core-count (driver)"=7') is None
