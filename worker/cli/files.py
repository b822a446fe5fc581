"""Files that a command was asked to leave: proven writable before the benchmark, written after it."""

from __future__ import annotations

import os
from pathlib import Path

from worker.contract.errors import StorageError


def check_writable(path: Path) -> None:
    """Open the file without changing it, and leave none that was not there. Raises: StorageError."""
    existed = os.path.lexists(path)
    try:
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Raises: StorageError."""
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {path}: {error.strerror}", "choose another file")
