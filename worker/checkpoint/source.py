"""An MLX-format checkpoint as a source: what it holds, and every reason to refuse it before anything is written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.checkpoint.digests import Stamps, combined_digest
from worker.checkpoint.index import TensorEntry, read_headers
from worker.checkpoint.layout import ExpertQuantization
from worker.checkpoint.mtp import MTP_FILE
from worker.contract.errors import CheckpointError

SUPPORTED_MODEL_TYPES = ("qwen3_next",)
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_EXPERT_TENSOR = re.compile(r"^model\.layers\.(\d+)\.mlp\.switch_mlp\.(\w+)\.(weight|scales|biases)$")
_PER_EXPERT_TENSOR = re.compile(r"^model\.layers\.\d+\.mlp\.experts\.\d+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checkpoint that can be prepared. `experts[layer]` maps `gate_proj.weight` and its kin to their stacked tensors."""

    directory: Path
    config: dict[str, Any]
    weight_files: tuple[Path, ...]
    mtp_file: Path | None
    trunk: dict[str, TensorEntry]
    experts: dict[int, dict[str, TensorEntry]]
    quantization: ExpertQuantization

    @property
    def num_experts(self) -> int:
        return int(self.config["num_experts"])

    def content_files(self) -> dict[str, Path]:
        """Every file whose bytes decide what the model computes, by the name it has in the digest."""
        names = ("config.json", "tokenizer.json")
        files = {name: self.directory / name for name in names if (self.directory / name).is_file()}
        files |= {path.name: path for path in self.weight_files}
        return files | ({MTP_FILE: self.mtp_file} if self.mtp_file else {})

    def digest(self, stamps: Stamps) -> tuple[str, dict[str, str]]:
        """The source's digest and that of each of its files."""
        files = {name: stamps.digest(path) for name, path in self.content_files().items()}
        return combined_digest(files), files


def read_source(directory: Path, mtp: Path | None = None) -> Source:
    """Read the configuration and the headers. Raises: CheckpointError for the first thing that is missing or unsuitable."""
    config = _read_config(directory)
    weight_files = tuple(sorted(directory.glob("model*.safetensors")))
    if not weight_files:
        raise CheckpointError(f"{directory} holds no model*.safetensors", "name a directory in MLX format")
    _check_shards(directory, weight_files)
    index = read_headers(weight_files)
    if any(_PER_EXPERT_TENSOR.match(name) for name in index):
        raise CheckpointError(
            f"{directory} is not in MLX format: its experts are separate tensors",
            "convert it first: mlx_lm.convert --hf-path SOURCE -q --q-bits 4",
        )
    experts: dict[int, dict[str, TensorEntry]] = {}
    trunk: dict[str, TensorEntry] = {}
    for name, entry in index.items():
        if match := _EXPERT_TENSOR.match(name):
            experts.setdefault(int(match[1]), {})[f"{match[2]}.{match[3]}"] = entry
        else:
            trunk[name] = entry
    quantization = _expert_quantization(config, directory)
    _check_experts(experts, config, directory)
    if mtp is None and (directory / MTP_FILE).is_file():
        mtp = directory / MTP_FILE
    if mtp is not None and not mtp.is_file():
        raise CheckpointError(f"{mtp} does not exist", "name the file with the mtp.* tensors, or leave --mtp out")
    return Source(
        directory=directory,
        config=config,
        weight_files=weight_files,
        mtp_file=mtp,
        trunk=trunk,
        experts=dict(sorted(experts.items())),
        quantization=quantization,
    )


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{path} does not exist", "name a directory that holds a checkpoint in MLX format"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON", "fetch the file again") from error
    if (model_type := config.get("model_type")) not in SUPPORTED_MODEL_TYPES:
        raise CheckpointError(
            f"{path} has model_type {model_type!r}, this build streams {', '.join(SUPPORTED_MODEL_TYPES)}"
        )
    return config


def _check_shards(directory: Path, weight_files: tuple[Path, ...]) -> None:
    index_file = directory / "model.safetensors.index.json"
    if not index_file.is_file():
        return
    try:
        named = set(json.loads(index_file.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index_file} is not a weight index", "fetch the file again") from error
    if missing := sorted(named - {path.name for path in weight_files}):
        raise CheckpointError(f"{directory} lacks {missing[0]} of {len(named)} weight files", "fetch the missing file")


def _expert_quantization(config: dict[str, Any], directory: Path) -> ExpertQuantization:
    quantization = config.get("quantization")
    if not isinstance(quantization, dict):
        raise CheckpointError(
            f"{directory} is not quantized", "quantize it first: mlx_lm.convert --hf-path SOURCE -q --q-bits 4"
        )
    default = {key: quantization.get(key) for key in ("bits", "group_size", "mode")}
    found = {
        json.dumps(default | {k: v for k, v in override.items() if k in default}, sort_keys=True)
        for path, override in quantization.items()
        if isinstance(override, dict) and ".switch_mlp." in path
    } or {json.dumps(default, sort_keys=True)}
    if len(found) > 1:
        raise CheckpointError(
            f"{directory} quantizes its experts in {len(found)} different ways, this build streams one per checkpoint"
        )
    chosen = json.loads(found.pop())
    return ExpertQuantization(
        bits=int(chosen["bits"]), group_size=int(chosen["group_size"]), mode=chosen["mode"] or "affine"
    )


def _check_experts(experts: dict[int, dict[str, TensorEntry]], config: dict[str, Any], directory: Path) -> None:
    if not experts:
        raise CheckpointError(f"{directory} holds no routed experts", "name a mixture-of-experts checkpoint")
    first = next(iter(experts.values()))
    for layer, tensors in sorted(experts.items()):
        for projection in PROJECTIONS:
            for suffix in ("weight", "scales"):
                if f"{projection}.{suffix}" not in tensors:
                    raise CheckpointError(
                        f"{directory} lacks model.layers.{layer}.mlp.switch_mlp.{projection}.{suffix}", "fetch it again"
                    )
        for name, entry in tensors.items():
            if entry.shape[0] != config["num_experts"]:
                raise CheckpointError(
                    f"{entry.name} holds {entry.shape[0]} experts, config.json says {config['num_experts']}"
                )
            if name not in first or entry.shape != first[name].shape or entry.dtype != first[name].dtype:
                raise CheckpointError(f"{entry.name} differs in shape or dtype from the first layer's")
