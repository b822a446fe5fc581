"""Which machine is this? Every machine column of the `runs` table, live on Linux and macOS.

The one idea: a fact that can't be read is None, never a guess. Reading is done by a runner and a root directory that
can be replaced, so a Mac's identity is tested from recorded output on any machine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from worker.machine import linux, macos
from worker.machine.command import Runner, run_command


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineIdentity:
    """The machine columns of `runs`, under their own names. None: not known here."""

    hardware_model: str | None = None
    chip: str | None = None
    cpu_cores: int | None = None
    cpu_tiers: str | None = None
    gpu_cores: int | None = None
    memory_bytes: int | None = None
    os_name: str | None = None
    os_version: str | None = None
    os_build: str | None = None
    mlx_device: str | None = None
    mlx_version: str | None = None
    mlx_lm_version: str | None = None
    mlx_wheel_tag: str | None = None
    python_version: str | None = None
    wired_limit_bytes: int | None = None
    power_mode: str | None = None
    nice: int | None = None
    omp_num_threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MlxFacts:
    """What MLX says of the device it computes on. `working_set_bytes` is its recommended maximum."""

    device: str | None = None
    working_set_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hardware:
    hardware_model: str | None = None
    chip: str | None = None
    cpu_cores: int | None = None
    cpu_tiers: str | None = None
    gpu_cores: int | None = None
    memory_bytes: int | None = None
    os_name: str | None = None
    os_version: str | None = None
    os_build: str | None = None
    wired_limit_bytes: int | None = None
    power_mode: str | None = None


def read_mlx() -> MlxFacts:
    """Ask MLX; nothing is known where it is not installed. Loads MLX on first use."""
    try:
        import mlx.core as mx

        device = mx.default_device()
        info = mx.device_info()
    except (ImportError, RuntimeError, ValueError):
        return MlxFacts()
    kind = "gpu" if device == mx.Device(mx.gpu) else "cpu"
    working_set = info.get("max_recommended_working_set_size")
    return MlxFacts(
        device=f"{kind} {info.get('architecture') or ''}".strip(),
        working_set_bytes=working_set if isinstance(working_set, int) and working_set > 0 else None,
    )


def identify(
    run: Runner = run_command,
    *,
    system: str | None = None,
    root: Path = Path("/"),
    mlx: Callable[[], MlxFacts] = read_mlx,
) -> MachineIdentity:
    """Identify this machine and the state in which this process runs on it.

    `system` is what `platform.system()` says; `root` is where Linux's files are read. Both exist for recorded machines.
    """
    system = system or platform.system()
    mlx_facts = mlx()
    if system == "Darwin":
        hardware = _macos(run, mlx_facts)
    elif system == "Linux":
        hardware = _linux(root)
    else:
        hardware = _Hardware(os_name=system or None)
    return MachineIdentity(
        hardware_model=hardware.hardware_model,
        chip=hardware.chip,
        cpu_cores=hardware.cpu_cores,
        cpu_tiers=hardware.cpu_tiers,
        gpu_cores=hardware.gpu_cores,
        memory_bytes=hardware.memory_bytes,
        os_name=hardware.os_name,
        os_version=hardware.os_version,
        os_build=hardware.os_build,
        wired_limit_bytes=hardware.wired_limit_bytes,
        power_mode=hardware.power_mode,
        mlx_device=mlx_facts.device,
        mlx_version=_version("mlx"),
        mlx_lm_version=_version("mlx-lm"),
        mlx_wheel_tag=_wheel_tag("mlx"),
        python_version=platform.python_version(),
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        omp_num_threads=macos.whole(os.environ.get("OMP_NUM_THREADS")),
    )


def _macos(run: Runner, mlx: MlxFacts) -> _Hardware:
    """Not verified on a Mac by this project's tests: they feed it recorded output."""
    sysctl = macos.parse_sysctl(run(macos.SYSCTL))
    gpu_cores = macos.parse_gpu_cores(run(macos.IOREG))
    if gpu_cores is None:
        gpu_cores = macos.parse_displays(run(macos.DISPLAYS))
    return _Hardware(
        hardware_model=sysctl.get("hw.model"),
        chip=sysctl.get("machdep.cpu.brand_string"),
        cpu_cores=macos.cpu_cores(sysctl),
        cpu_tiers=macos.cpu_tiers(sysctl),
        gpu_cores=gpu_cores,
        memory_bytes=macos.whole(sysctl.get("hw.memsize")),
        os_name="macOS",
        os_version=macos.parse_line(run(macos.PRODUCT_VERSION)),
        os_build=macos.parse_line(run(macos.BUILD_VERSION)),
        wired_limit_bytes=macos.wired_limit_bytes(sysctl) or mlx.working_set_bytes,
        power_mode=macos.parse_power_mode(run(macos.POWER)),
    )


def _linux(root: Path) -> _Hardware:
    release = linux.parse_os_release(read_text(root / "etc/os-release"))
    return _Hardware(
        hardware_model=linux.parse_word(read_text(root / "sys/class/dmi/id/product_name")),
        chip=linux.parse_cpu_model(read_text(root / "proc/cpuinfo")),
        cpu_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_bytes=linux.parse_memory_bytes(read_text(root / "proc/meminfo")),
        os_name=release.get("NAME", "Linux"),
        os_version=release.get("VERSION_ID"),
        os_build=linux.parse_word(read_text(root / "proc/sys/kernel/osrelease")),
        power_mode=linux.parse_word(read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
    )


def read_text(path: Path) -> str | None:
    """The file's text, or None when it can't be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _wheel_tag(distribution: str) -> str | None:
    """The tags of the installed wheel: MLX ships a different one for each major version of macOS."""
    try:
        wheel = metadata.distribution(distribution).read_text("WHEEL") or ""
    except metadata.PackageNotFoundError:
        return None
    tags = sorted(line.removeprefix("Tag:").strip() for line in wheel.splitlines() if line.startswith("Tag:"))
    return ",".join(tags) or None
