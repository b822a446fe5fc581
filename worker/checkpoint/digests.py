"""Digests of files and records, remembered by (size, modification time) so that tens of gigabytes are hashed once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

_CHUNK_BYTES = 1 << 24


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes, as hex."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def record_digest(payload: bytes | bytearray | memoryview) -> str:
    """BLAKE2b-128 of an expert record's payload, as hex."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


def combined_digest(files: dict[str, str]) -> str:
    """One digest for a set of named files: SHA-256 over `name digest` lines in name order, first 32 hex digits."""
    text = "".join(f"{name} {digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Stamps:
    """A small file of remembered facts about files, each valid while the file's size and modification time stay.

    Losing or corrupting it costs time, never correctness: a fact that cannot be read is computed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._facts: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._facts = {}

    def get(self, kind: str, path: Path) -> str | None:
        return self._facts.get(self._key(kind, path))

    def put(self, kind: str, path: Path, value: str) -> None:
        """Remember, best effort: a cache that cannot be written is no reason to fail."""
        self._facts[self._key(kind, path)] = value
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self._facts, indent=0), encoding="utf-8")
            part.replace(self._path)

    def digest(self, path: Path) -> str:
        """The file's digest, from memory when the file has not changed."""
        if (known := self.get("sha256", path)) is not None:
            return known
        value = file_digest(path)
        self.put("sha256", path, value)
        return value

    @staticmethod
    def _key(kind: str, path: Path) -> str:
        status = path.stat()
        return f"{kind} {path.resolve()} {status.st_size} {status.st_mtime_ns}"
