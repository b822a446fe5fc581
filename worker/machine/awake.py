"""Keep the machine awake while it measures.

On macOS `caffeinate` holds the machine, its disk and its display, and ends by itself when this process does. Not
verified on a Mac by this project's tests. Elsewhere nothing is done: servers do not doze off.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence

CAFFEINATE = "/usr/bin/caffeinate"


def command(pid: int) -> Sequence[str]:
    """The command that keeps a Mac awake until process `pid` ends."""
    return (CAFFEINATE, "-dimsu", "-w", str(pid))


@contextlib.contextmanager
def awake(*, system: str | None = None) -> Iterator[None]:
    """Hold the machine awake. A machine that can't be held is measured all the same: sleep shows in the times."""
    if (system or platform.system()) != "Darwin":
        yield
        return
    try:
        holder = subprocess.Popen(
            command(os.getpid()), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        holder.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(timeout=5)
