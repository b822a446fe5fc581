"""What the program writes for itself is its owner's: directories of mode 0700, files of mode 0600, whatever the umask."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

OTHERS = 0o077
"""The bits by which a group and others may read, write and enter."""


def own_directory(path: Path) -> Path:
    """Make a directory and the missing ones above it, for the owner alone; one that exists stays as it is.

    Raises: OSError.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(exist_ok=True)  # FileExistsError where a file stands
    return path


def owner_only(path: str, flags: int) -> int:
    """An `opener` for `open`: a file that is made by it is the owner's alone; one that exists keeps its mode."""
    return os.open(path, flags, 0o600)


def write_own(path: Path, text: str) -> None:
    """Write a whole file. Raises: OSError."""
    with open(path, "w", encoding="utf-8", opener=owner_only) as handle:
        handle.write(text)


def replace_own(path: Path, text: str) -> None:
    """Write a whole file so that whoever reads it meanwhile finds the old one or the new one. Raises: OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_own(part, text)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
