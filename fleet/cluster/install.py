"""The head's build on a machine: the wheel and the lock go there, an environment is made from exactly these hashes.

`ROOT/installed` is written last and names what is there; while it names the same, nothing is copied or installed.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from dataclasses import dataclass

from fleet.cluster.ssh import Output, Ssh, SshError, explain_command
from fleet.cluster.survey import Survey
from fleet.cluster.wheel import Wheel, lock_file, pack

MIN_FREE_BYTES = 2 << 30
"""An environment takes 0.9 GB, and as much again in uv's cache where the two are on different disks."""
INSTALL_TIMEOUT_S = 1800.0
_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What every machine gets."""

    wheel: Wheel
    lock: bytes
    python: str

    def mark(self, python: str | None) -> str:
        """The name of this build with a Python version: equal marks are equal installations."""
        digest = hashlib.sha256(self.wheel.digest.encode() + self.lock).hexdigest()[:20]
        return f"{digest} python {python or self.python}"


def this_build() -> Build:
    """Raises: ClusterError when this installation is damaged."""
    return Build(wheel=pack(), lock=lock_file(), python=platform.python_version())


def is_installed(build: Build, ssh: Ssh, seen: Survey) -> bool:
    return seen.installed == build.mark(ssh.node.python)


def check_machine(ssh: Ssh, seen: Survey) -> None:
    """Raises: SshError when nothing can be installed there."""
    name = ssh.node.name
    if (seen.system, seen.processor) not in (("Darwin", "arm64"), ("Linux", "x86_64"), ("Linux", "aarch64")):
        raise SshError(f"{name}: it is a {seen.system} {seen.processor}", "expected macOS on Apple silicon, or Linux")
    if not seen.writable:
        raise SshError(f"{name}: {seen.user} cannot write to {seen.below}", "set paths.root in the machine's file")


def check_space(ssh: Ssh, seen: Survey) -> None:
    """Raises: SshError when there is too little for an installation."""
    if seen.free_bytes is not None and seen.free_bytes < MIN_FREE_BYTES:
        raise SshError(
            f"{ssh.node.name}: {seen.free_bytes / _GIB:.2f} GiB are free at {seen.below}, "
            f"an installation needs {MIN_FREE_BYTES / _GIB:.0f}",
            "free some space there, or set paths.root to another disk",
            "disk full",
        )


def install(build: Build, ssh: Ssh, seen: Survey, say: Callable[[str], None]) -> None:
    """Make the environment. An older one is replaced; one that was made halfway is not taken for whole.

    Raises: SshError naming the step that failed.
    """
    check_space(ssh, seen)
    root, python = seen.root, ssh.node.python or build.python
    offline = ["--offline"] if ssh.node.offline else []
    ssh.check(
        [
            "/bin/sh",
            "-c",
            'umask 077; mkdir -p "$1" && chmod 700 "$1" && rm -rf "$1/installed" "$1/venv"',
            "make",
            root,
        ],
        what=f"making {root}",
    )
    uv = seen.uv or _fetch_uv(ssh, seen, say)
    say(f"copies {build.wheel.name} ({len(build.wheel.content) / 1e6:.0f} MB)")
    wheel, lock = f"{root}/{build.wheel.name}", f"{root}/requirements.lock"
    ssh.put(build.wheel.content, wheel)
    ssh.put(build.lock, lock)
    say(f"installs Python {python} and the locked packages" + (" from its cache" if offline else ""))
    _uv(ssh, [uv, "venv", "--quiet", "--no-project", "--python", python, *offline, f"{root}/venv"], python)
    sync = ["pip", "sync", "--quiet", "--python", f"{root}/venv", "--require-hashes", *offline, lock]
    _uv(ssh, [uv, *sync], python)
    own = ["pip", "install", "--quiet", "--python", f"{root}/venv", "--no-deps", "--offline", "--reinstall", wheel]
    _uv(ssh, [uv, *own], python)
    ssh.put(build.mark(ssh.node.python).encode(), f"{root}/installed")


def _fetch_uv(ssh: Ssh, seen: Survey, say: Callable[[str], None]) -> str:
    name, tools = ssh.node.name, f"{seen.root}/tools"
    if ssh.node.offline or seen.python is None:
        why = "and the machine is offline" if ssh.node.offline else "and there is no python3 to fetch it with"
        raise SshError(f"{name}: uv is missing there, {why}", f"put uv at {tools}/bin/uv", "missing command")
    say("fetches uv")
    ssh.check([seen.python, "-m", "venv", tools], what="making an environment for uv", timeout_s=300)
    pip = [f"{tools}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]
    ssh.check(pip, what="fetching uv", timeout_s=600)
    return f"{tools}/bin/uv"


def _uv(ssh: Ssh, argv: list[str], python: str) -> None:
    output = ssh.run(argv, timeout_s=INSTALL_TIMEOUT_S)
    if output.status != 0:
        raise _explain(ssh, argv, output, python)


def _explain(ssh: Ssh, argv: list[str], output: Output, python: str) -> SshError:
    text, name = output.stderr.lower(), ssh.node.name
    said = " ".join(line.strip(" ×╰─▶│├") for line in output.stderr.splitlines() if line.strip())[:300]
    if "no space left" in text:
        return explain_command(ssh.node, "installing", argv[0], output)
    if "no interpreter found" in text or "no python" in text:
        hint = f"run there: uv python install {python}; or set python in the machine's file"
        return SshError(f"{name}: there is no Python {python}", hint, "missing command")
    if ssh.node.offline and ("network" in text or "offline" in text or "cache" in text):
        hint = "fill its uv cache while it has a network, or remove offline from the machine's file"
        return SshError(f"{name}: its uv cache lacks a package: {said}", hint)
    return SshError(f"{name}: uv {argv[1]} failed: {said}", f"fleet doctor {name}")
