"""Check a prepared checkpoint against its manifest: sizes first, then every file's and every record's digest."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from worker.checkpoint.digests import Stamps, record_digest
from worker.checkpoint.layout import Manifest, expert_file
from worker.contract.errors import CheckpointError

_HINT = "prepare it again: remove the directory, then worker prepare SOURCE --out DIR"
_THREADS = 4


def check_sizes(directory: Path, manifest: Manifest) -> None:
    """Compare every file's size with the manifest: quick, and finds what was truncated. Raises: CheckpointError."""
    expected = {directory / name: size for name, (size, _) in manifest.files.items()}
    layer_bytes = manifest.num_experts * manifest.record.record_bytes
    expected |= {expert_file(directory, layer): layer_bytes for layer in manifest.moe_layers}
    for path, size in expected.items():
        try:
            found = path.stat().st_size
        except FileNotFoundError as error:
            raise CheckpointError(f"{path} is missing", _HINT) from error
        if found != size:
            raise CheckpointError(f"{path} has {found:,} bytes, the manifest says {size:,}", _HINT)


def check_records(
    directory: Path,
    manifest: Manifest,
    stamps: Stamps,
    *,
    always: bool = False,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> int:
    """Compare every record with its digest and return how many were read now.

    A layer's file that was checked before and has neither another size nor another modification time is not read again,
    unless `always`. Raises: CheckpointError naming layer, expert and digests of the first record that differs.
    """
    num_read = 0
    for done, layer in enumerate(manifest.moe_layers):
        path = expert_file(directory, layer)
        if always or stamps.get("records", path) != manifest.source_digest:
            _check_layer(path, layer, manifest)
            stamps.put("records", path, manifest.source_digest)
            num_read += manifest.num_experts
        on_progress((done + 1) / len(manifest.moe_layers))
    return num_read


def check_files(directory: Path, manifest: Manifest, stamps: Stamps, *, always: bool = False) -> None:
    """Compare the trunk, the head and the tokenizer with their digests. Raises: CheckpointError naming the file."""
    for name, (_, digest) in manifest.files.items():
        path = directory / name
        if always or stamps.get("file", path) != digest:
            found = stamps.digest(path)
            if found != digest:
                raise CheckpointError(f"{path} has digest {found[:16]}, the manifest says {digest[:16]}", _HINT)
            stamps.put("file", path, digest)


def check_record(path: Path, layer: int, expert: int, payload: bytes | memoryview, manifest: Manifest) -> None:
    """Compare one record's payload with its digest. Raises: CheckpointError naming layer and expert."""
    found, expected = record_digest(payload), manifest.record_digests[layer][expert]
    if found != expected:
        raise CheckpointError(
            f"{path}: layer {layer} expert {expert} has digest {found}, the manifest says {expected}", _HINT
        )


def _check_layer(path: Path, layer: int, manifest: Manifest) -> None:
    size, payload = manifest.record.record_bytes, manifest.record.payload_bytes

    def check(expert: int) -> None:
        with path.open("rb") as handle:
            handle.seek(expert * size)
            check_record(path, layer, expert, handle.read(payload), manifest)

    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(check, range(manifest.num_experts)):
            pass
