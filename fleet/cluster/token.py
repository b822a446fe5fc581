"""The token that opens the cluster: a file that only its owner can read, kept over restarts of the head."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_token(path: Path) -> Path:
    """Make a new token. Raises: OSError, also when the file exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_hex(32))
    return path


def keep_token(path: Path) -> Path:
    """Make a token unless there is one; one that others could read is not kept. Raises: OSError."""
    if path.is_file() and path.stat().st_size >= 64 and path.stat().st_mode & 0o077 == 0:
        return path
    path.unlink(missing_ok=True)
    return write_token(path)
