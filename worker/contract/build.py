"""The build: a hash of the program text of both packages, stored with every row and compared between head and node."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def build_hash() -> str:
    """First 16 hex digits of the SHA-256 over the names and contents of all Python files of `worker` and `fleet`."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("fleet", "worker"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
