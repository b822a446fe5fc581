"""Ask the operating system by running one of its tools: an absolute path, no locale, a time-out, and no exceptions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

Runner = Callable[[Sequence[str]], str | None]
"""Runs a command and returns what it printed, or None when it printed nothing, failed to start, or took too long."""

TIMEOUT_S = 10.0


def run_command(command: Sequence[str]) -> str | None:
    """Run `command`, never with a shell.

    The exit status is not looked at: `sysctl` prints every name it knows and fails if there was one it doesn't.
    """
    try:
        done = subprocess.run(
            list(command),
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", errors="replace") or None
