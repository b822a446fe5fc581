"""What the head can know of a checkpoint without loading it: the few numbers that decide whether a task fits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import worker
from fleet.errors import UsageError
from worker.contract.task import BUNDLED_CHECKPOINT, CheckpointRef

CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a mixture-of-experts model that the pool and the context depend on."""

    num_experts: int
    experts_per_token: int
    context_tokens: int | None = None


def checkpoint_folder(checkpoint: CheckpointRef) -> Path:
    """Where this machine has the checkpoint. Raises: UsageError."""
    if checkpoint.source == BUNDLED_CHECKPOINT:
        return Path(next(iter(worker.__path__))) / "demo"
    return _at_home(checkpoint.source)


def read_shape(checkpoint: CheckpointRef) -> ModelShape:
    """The shape of a checkpoint that lies on this machine.

    Raises: UsageError when it is missing or when its config.json is no mixture-of-experts model's.
    """
    folder = checkpoint_folder(checkpoint)
    if not folder.is_dir():
        raise UsageError(
            f"checkpoint {checkpoint.source!r}: there is no directory {folder}",
            "correct checkpoint.source in the study, or put the model there",
        )
    if checkpoint.mtp is not None and not _at_home(checkpoint.mtp).is_file():
        raise UsageError(
            f"checkpoint {checkpoint.source!r}: there is no file {checkpoint.mtp}", "correct checkpoint.mtp"
        )
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return ModelShape(
            num_experts=_count(config, "num_experts"),
            experts_per_token=_count(config, "num_experts_per_tok"),
            context_tokens=config.get("max_position_embeddings"),
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}", "is the download complete?") from error
    except (ValueError, TypeError, AttributeError) as error:
        message = f"{path}: not the configuration of a mixture-of-experts model: {error}"
        raise UsageError(message, "expected a Qwen3-Next checkpoint in MLX format") from error


def _at_home(name: str) -> Path:
    """Raises: UsageError when it starts at a home that this machine does not have."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError(f"checkpoint: {name!r} starts at a home that is not here", "write the whole path") from error


def _count(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} is {value!r}")
    return value
