"""One benchmark at a time on this machine, whoever starts it: an advisory lock held by the benchmark process itself.

Ray's resources alone can't promise that: a worker may outlive the daemon that started it. The lock is the kernel's, so
it ends with the process that holds it, however that ends. The file stays; only the lock on it means something.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from worker.contract.errors import MachineBusyError, StorageError

DEFAULT_LOCK = Path("/tmp/mlx-fleet-benchmark.lock")  # noqa: S108 - one place for all users; the lock holds no data
"""Machine-wide on purpose: the user's own directory would let two users measure at the same time."""


@contextlib.contextmanager
def machine_lock(path: Path = DEFAULT_LOCK, *, timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the machine's lock. Raises: MachineBusyError naming the holder; StorageError when the file won't open."""
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=timeout_s)
    except Timeout:
        raise MachineBusyError(_busy(path), "wait until it ends, or stop it; --lock names another lock file") from None
    except OSError as error:
        raise StorageError(
            f"cannot lock {path}: {error.strerror or error}", "name a lock file that can be written with --lock"
        ) from error
    holder = _holder_file(path)
    try:
        _write_holder(holder)
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def holder_pid(path: Path = DEFAULT_LOCK) -> int | None:
    """The process that says it holds the lock, if it is alive."""
    try:
        pid = int(_holder_file(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if 0 < pid < 2**31 and psutil.pid_exists(pid) else None


def _busy(path: Path) -> str:
    pid = holder_pid(path)
    who = f"process {pid}" if pid else "another process"
    return f"{who} is running a benchmark on this machine and holds {path}"


def _holder_file(path: Path) -> Path:
    """Beside the lock, not in it: opening a lock file empties it, and a contender opens it too."""
    return path.with_name(path.name + ".pid")


def _write_holder(holder: Path) -> None:
    """Best effort: the number only makes a message better."""
    with contextlib.suppress(OSError):
        holder.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        holder.write_text(str(os.getpid()), encoding="ascii")
