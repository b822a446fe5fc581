"""Prepare a checkpoint: from stacked expert tensors to one contiguous record per expert, atomically.

Everything is written into a sibling folder and renamed into place at the end, manifest last. A run that is interrupted
leaves only a folder that names its process and that the next preparation removes.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx
import numpy as np
import psutil
from numpy.typing import NDArray

from worker.checkpoint.digests import Stamps, file_digest, record_digest
from worker.checkpoint.index import TensorEntry, read_headers
from worker.checkpoint.layout import (
    DTYPE_BYTES,
    MANIFEST_FILE,
    Manifest,
    MtpLayout,
    NumpyDtype,
    RecordLayout,
    RecordPart,
    expert_file,
    is_prepared,
    read_manifest,
)
from worker.checkpoint.mtp import MTP_FILE, convert_head
from worker.checkpoint.source import PROJECTIONS, TOKENIZER_FILES, Source
from worker.contract.errors import CheckpointError, StorageError
from worker.measure.host import host_bytes

MLX_DTYPES: dict[NumpyDtype, mx.Dtype] = {
    "uint32": mx.uint32,
    "float32": mx.float32,
    "bfloat16": mx.bfloat16,
    "float16": mx.float16,
}
_FORMAT_DTYPES: dict[str, NumpyDtype] = {"U32": "uint32", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
TRUNK_FILE = "model.safetensors"
_SPARE_BYTES = 64 << 20
"""Left free on the disk beyond what preparing needs."""

OnProgress = Callable[[float, str], None]
"""Called with the fraction done (0..1) and what is being written."""


def prepare(
    source: Source,
    out: Path,
    *,
    compute_dtype: NumpyDtype,
    stamps: Stamps,
    name: str | None = None,
    on_progress: OnProgress = lambda fraction, what: None,
) -> Manifest:
    """Write the prepared layout of `source` to `out` and return its manifest.

    A directory that already holds the same content in the same dtype is left as it is. At most one layer is in memory.
    Raises: CheckpointError for bytes that cannot be prepared; StorageError when `out` is taken, not writable or full.
    """
    on_progress(0.0, "reading digests")
    digest, files = source.digest(stamps)
    if is_prepared(out):
        manifest = read_manifest(out)
        if manifest.source_digest == digest and manifest.compute_dtype == compute_dtype:
            return manifest
        raise StorageError(
            f"{out} holds another prepared checkpoint ({manifest.name}, {manifest.compute_dtype})",
            "choose another --out, or remove it",
        )
    if out.exists() and any(out.iterdir()):
        raise StorageError(f"{out} is not empty", "choose another --out, or empty it")
    layout = record_layout(next(iter(source.experts.values())), compute_dtype)
    _check_space(source, layout, out)
    with _writing(out) as part:
        head = _write_head(source, part, compute_dtype)
        _write_trunk(source, part, compute_dtype)
        digests = _write_experts(source, part, layout, on_progress)
        for file in ("config.json", *TOKENIZER_FILES):
            if (source.directory / file).is_file():
                shutil.copyfile(source.directory / file, part / file)
        manifest = _manifest(
            source, part, layout, compute_dtype, name or source.directory.name, digest, files, head, digests
        )
        (part / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
        _sync(part)
    on_progress(1.0, "done")
    return manifest


def record_layout(tensors: dict[str, TensorEntry], compute_dtype: NumpyDtype) -> RecordLayout:
    """Lay the tensors of one expert one after another: packed weights as they are, floats in the compute dtype."""
    parts: list[RecordPart] = []
    offset = 0
    for projection in PROJECTIONS:
        for suffix in ("weight", "scales", "biases"):
            entry = tensors.get(f"{projection}.{suffix}")
            if entry is None:
                continue
            dtype = _FORMAT_DTYPES[entry.dtype]
            dtype = dtype if dtype == "uint32" else compute_dtype
            nbytes = int(np.prod(entry.shape[1:])) * DTYPE_BYTES[dtype]
            parts.append(
                RecordPart(
                    name=f"{projection}.{suffix}", dtype=dtype, shape=entry.shape[1:], offset=offset, nbytes=nbytes
                )
            )
            offset += nbytes
    return RecordLayout(parts=tuple(parts))


def as_bytes(array: mx.array) -> NDArray[np.uint8]:
    """The bytes of an evaluated array, one row per leading index. Shapes: [n, ...] -> [n, bytes]."""
    flat = np.frombuffer(host_bytes(mx.contiguous(array)), dtype=np.uint8)
    return flat.reshape(array.shape[0], -1)


def _write_experts(
    source: Source, part: Path, layout: RecordLayout, on_progress: OnProgress
) -> dict[int, tuple[str, ...]]:
    (part / "experts").mkdir()
    digests: dict[int, tuple[str, ...]] = {}
    for done, (layer, tensors) in enumerate(source.experts.items()):
        on_progress(done / len(source.experts), f"layer {layer}")
        records = np.zeros((source.num_experts, layout.record_bytes), dtype=np.uint8)
        loaded = _load(tensors.values())
        for item in layout.parts:
            entry = tensors[item.name]
            value = loaded.pop(entry.name).astype(MLX_DTYPES[item.dtype])
            mx.eval(value)
            records[:, item.offset : item.offset + item.nbytes] = as_bytes(value)
        payload = layout.payload_bytes
        digests[layer] = tuple(record_digest(record[:payload].data) for record in records)
        with expert_file(part, layer).open("wb") as handle:
            handle.write(records.data)
    return digests


def _write_trunk(source: Source, part: Path, compute_dtype: NumpyDtype) -> None:
    dtype = MLX_DTYPES[compute_dtype]
    loaded = _load(source.trunk.values())
    trunk = {name: value if value.dtype == mx.uint32 else value.astype(dtype) for name, value in loaded.items()}
    _save(part / TRUNK_FILE, trunk)


def _write_head(source: Source, part: Path, compute_dtype: NumpyDtype) -> MtpLayout | None:
    if source.mtp_file is None:
        return None
    tensors, layout = convert_head(
        source.mtp_file, num_experts=source.num_experts, compute_dtype=MLX_DTYPES[compute_dtype]
    )
    _save(part / MTP_FILE, tensors)
    return layout


def _load(entries: Iterable[TensorEntry]) -> dict[str, mx.array]:
    """The named tensors, lazily: bytes are read when an array is evaluated."""
    wanted = {entry.name: entry for entry in entries}
    loaded: dict[str, mx.array] = {}
    for file in sorted({entry.file for entry in wanted.values()}):
        tensors = mx.load(str(file))
        assert isinstance(tensors, dict)
        loaded |= {name: value for name, value in tensors.items() if name in wanted}
    return loaded


def _save(path: Path, tensors: dict[str, mx.array]) -> None:
    """Raises: StorageError when the file did not come out whole (MLX reports a full disk as a RuntimeError, or not at all)."""
    try:
        mx.save_safetensors(str(path), tensors, metadata={"format": "mlx"})
        read_headers([path])
    except (RuntimeError, CheckpointError) as error:
        raise StorageError(f"cannot write {path.name}: {error}", "free some space") from error


def _manifest(
    source: Source,
    part: Path,
    layout: RecordLayout,
    compute_dtype: NumpyDtype,
    name: str,
    digest: str,
    files: dict[str, str],
    head: MtpLayout | None,
    digests: dict[int, tuple[str, ...]],
) -> Manifest:
    config = source.config
    written = sorted(path for path in part.iterdir() if path.is_file())
    return Manifest(
        name=name,
        source_digest=digest,
        source_files=files,
        compute_dtype=compute_dtype,
        model_type=config["model_type"],
        num_layers=int(config["num_hidden_layers"]),
        moe_layers=tuple(source.experts),
        num_experts=source.num_experts,
        experts_per_token=int(config["num_experts_per_tok"]),
        max_context_tokens=int(config["max_position_embeddings"]),
        expert_quantization=source.quantization,
        record=layout,
        mtp=head,
        files={path.name: (path.stat().st_size, file_digest(path)) for path in written},
        record_digests=digests,
    )


def _check_space(source: Source, layout: RecordLayout, out: Path) -> None:
    experts = len(source.experts) * source.num_experts * layout.record_bytes
    trunk = sum(entry.nbytes * (1 if entry.dtype == "U32" else 2) for entry in source.trunk.values())
    needed = experts + trunk + (source.mtp_file.stat().st_size if source.mtp_file else 0)
    parent = next(path for path in (out, *out.parents) if path.exists())
    free = shutil.disk_usage(parent).free
    if free < needed + _SPARE_BYTES:
        raise StorageError(
            f"{parent} has {free:,} bytes free, preparing needs {needed:,} (experts {experts:,}, rest {needed - experts:,})",
            "free some space or choose another --out",
        )


@contextmanager
def _writing(out: Path) -> Iterator[Path]:
    """Give a folder beside `out` to fill; rename it to `out` on success, remove it on failure."""
    part = out.with_name(f"{out.name}.partial-{os.getpid()}")
    try:
        _remove_leftovers(out)
        part.mkdir(parents=True)
        yield part
        if out.exists():
            out.rmdir()
        part.rename(out)
    except OSError as error:
        action = "free some space" if error.errno == errno.ENOSPC else "choose a directory that you may write to"
        raise StorageError(f"cannot write {out}: {error.strerror or error}", action) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_leftovers(out: Path) -> None:
    for path in out.parent.glob(f"{out.name}.partial-*"):
        pid = path.name.rpartition("-")[2]
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            shutil.rmtree(path, ignore_errors=True)


def _sync(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
