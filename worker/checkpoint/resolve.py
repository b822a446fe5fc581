"""From what a task names to a prepared directory on this machine: the bundled model, a prepared folder, or a source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from worker.checkpoint.digests import Stamps
from worker.checkpoint.layout import LAYOUT_VERSION, Manifest, NumpyDtype, is_prepared, read_manifest
from worker.checkpoint.prepare import prepare
from worker.checkpoint.source import read_source
from worker.contract.errors import CheckpointError, StorageError
from worker.contract.task import BUNDLED_CHECKPOINT, CheckpointRef

BUNDLED_DIRECTORY = Path(__file__).parents[1] / "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A prepared checkpoint on this machine."""

    directory: Path
    manifest: Manifest


def default_cache_directory() -> Path:
    """Where prepared checkpoints and remembered digests live unless the command says otherwise."""
    home = Path.home()
    return home / "Library/Caches/mlx-fleet" if sys.platform == "darwin" else home / ".cache/mlx-fleet"


def open_stamps(cache: Path) -> Stamps:
    return Stamps(cache / "stamps.json")


def resolve(
    reference: CheckpointRef,
    *,
    cache: Path,
    compute_dtype: NumpyDtype | None,
    stamps: Stamps,
    on_progress: Callable[[float, str], None] = lambda fraction, what: None,
) -> Prepared:
    """Find the prepared directory, preparing a source into the cache when that has not been done before.

    `compute_dtype` None takes what a prepared directory was made for, and for a source the dtype it is stored in.
    Raises: CheckpointError when nothing usable is there or its content is not what the task expects; StorageError.
    """
    bundled = reference.source == BUNDLED_CHECKPOINT
    path = BUNDLED_DIRECTORY if bundled else Path(reference.source).expanduser()
    if not path.is_dir():
        raise CheckpointError(
            f"checkpoint {path} does not exist",
            f"name a directory, or {BUNDLED_CHECKPOINT!r} for the bundled model",
        )
    if is_prepared(path):
        found = Prepared(directory=path, manifest=read_manifest(path))
        if compute_dtype not in (None, found.manifest.compute_dtype):
            raise CheckpointError(
                f"{path} was prepared for {found.manifest.compute_dtype}, the task computes in {compute_dtype}",
                f"prepare it again: worker prepare SOURCE --compute-dtype {compute_dtype} --out DIR",
            )
    else:
        mtp = Path(reference.mtp).expanduser() if reference.mtp else None
        name = BUNDLED_CHECKPOINT if bundled else None
        found = _prepare_into_cache(path, mtp, name, cache, compute_dtype, stamps, on_progress)
    if reference.digest not in (None, found.manifest.source_digest):
        raise CheckpointError(
            f"checkpoint {path} has digest {found.manifest.source_digest}, the task expects {reference.digest}",
            "fetch the checkpoint that the study names, or correct its digest",
        )
    return found


def _prepare_into_cache(
    path: Path,
    mtp: Path | None,
    name: str | None,
    cache: Path,
    compute_dtype: NumpyDtype | None,
    stamps: Stamps,
    on_progress: Callable[[float, str], None],
) -> Prepared:
    source = read_source(path, mtp)
    dtype = compute_dtype or stored_dtype(path, source.config)
    digest, _ = source.digest(stamps)
    out = cache / "prepared" / f"{digest}-{dtype}-v{LAYOUT_VERSION}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(out.with_name(f"{out.name}.lock")):
            manifest = prepare(source, out, compute_dtype=dtype, stamps=stamps, name=name, on_progress=on_progress)
    except OSError as error:
        raise StorageError(
            f"cannot write to the cache {cache}: {error.strerror or error}", "choose another with --cache DIR"
        ) from error
    return Prepared(directory=out, manifest=manifest)


def stored_dtype(path: Path, config: dict[str, object]) -> NumpyDtype:
    """The float dtype the source's configuration names; bfloat16 when it names none, as the model family does."""
    match config.get("torch_dtype") or config.get("dtype") or "bfloat16":
        case "bfloat16":
            return "bfloat16"
        case "float16":
            return "float16"
        case "float32":
            return "float32"
        case other:
            raise CheckpointError(
                f"{path / 'config.json'} has dtype {other!r}", "expected bfloat16, float16 or float32"
            )
