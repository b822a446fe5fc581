"""The token that opens the cluster: a file that only its owner can read, kept over restarts of the head."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from fleet.errors import StorageError
from worker.contract.private import OTHERS


def write_token(path: Path) -> Path:
    """Make a new token. Raises: OSError, also when the file exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_hex(32))
    return path


def check_token(path: Path) -> None:
    """Raises: StorageError for a token that others could have read, or that is not ours; OSError."""
    if not path.exists():
        return
    found = path.stat()
    again = f"rm {path}; fleet up makes another and brings it to the machines"
    if found.st_uid not in (os.getuid(), 0):
        raise StorageError(f"{path}: the token belongs to another user", again)
    if found.st_mode & OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise StorageError(f"{path}: others may have read the token (mode {mode:o}, expected 600)", again)


def keep_token(path: Path) -> Path:
    """Make a token unless there is a whole one. Raises: StorageError as `check_token`; OSError."""
    check_token(path)
    if path.is_file() and path.stat().st_size >= 64:
        return path
    path.unlink(missing_ok=True)
    return write_token(path)
